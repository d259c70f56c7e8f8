"""Ends the process quietly at ctrl-C during imports."""

import os
import signal
import threading
from types import FrameType


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
