"""Settings of the process for training and decoding on a CPU."""

import ctypes
import os
import sys

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
