"""Settings of the process for training and decoding on a CPU."""

import ctypes
import io
import os
import sys
from contextlib import suppress

from dynconv.errors import UserError

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # malloc.h


def tune_cpu() -> None:
    """Keep memory and compiled products from one update to the next, within bounds.

    glibc gives freed memory back and gets it again, cleared by the kernel: a fifth of an update's
    time; a new tensor of 40 MB costs seven times a copy of it. oneDNN keeps up to 1,024 compiled
    bfloat16 products of a megabyte each, and no two batches have the same shape: 64 hold those of
    one update.
    """
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "64")
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:  # musl has none
        if not mallopt(M_MMAP_THRESHOLD, 1 << 30):
            mallopt(M_MMAP_THRESHOLD, 32 << 20)  # the most that some versions take
        mallopt(M_TRIM_THRESHOLD, 2**31 - 1)


def check_output() -> None:
    """Make stdout escape characters that its encoding lacks; UserError when it is closed."""
    if sys.stdout is None:  # the next file that is opened would get its number, and its text
        raise UserError("standard output is closed: send it to a file, or to /dev/null")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def write_utf8() -> None:
    """Make stdout UTF-8 with plain line ends, whatever the locale: it carries text to keep."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", errors="strict", newline="\n")


def drop_output() -> None:
    """Forget what stdout could not write: Python would try again when it ends, and complain."""
    with suppress(OSError, ValueError):  # a stdout that is no file
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
