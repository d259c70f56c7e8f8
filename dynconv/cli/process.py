"""Prepares the process: its memory on a CPU, and how it ends at ctrl-C during imports."""

import ctypes
import os
import signal
import sys
import threading
from types import FrameType

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""parameters of mallopt, as in malloc.h"""


def tune_cpu() -> None:
    """Reuse freed memory and compiled matrix products from one update to the next.

    By default glibc returns freed memory to the kernel and later gets it back zeroed, which takes a
    fifth of an update: allocating a tensor of 40 MB costs seven times as much as copying it. oneDNN
    caches 1,024 compiled bfloat16 products of up to a megabyte, although no two batches have the
    same shape; the 64 that we allow are enough for one update.
    """
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "64")
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:  # musl has none
        if not mallopt(M_MMAP_THRESHOLD, 1 << 30):
            mallopt(M_MMAP_THRESHOLD, 32 << 20)  # the maximum in some versions
        mallopt(M_TRIM_THRESHOLD, 2**31 - 1)


def end_quietly_during_imports() -> None:
    """Let ctrl-C end the process with one line while torch is imported.

    Its C++ code cannot pass a KeyboardInterrupt on, and aborts or raises an ImportError. Nothing is
    lost by ending there, because no command has begun. Later ctrl-C raises, as it does by default.
    """
    if threading.current_thread() is threading.main_thread():
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, interrupt)


def interrupt(number: int, frame: FrameType | None) -> None:
    """Handle SIGINT."""
    if is_importing_torch(frame):
        os.write(2, b"dynconv: interrupted\n")
        os._exit(128 + number)
    raise KeyboardInterrupt


def is_importing_torch(frame: FrameType | None) -> bool:
    """Return whether the frame, or one that called it, executes the module `torch`."""
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_globals.get("__name__") == "torch":
            return True
        frame = frame.f_back
    return False
