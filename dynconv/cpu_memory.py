"""Sets what this process keeps from one update to the next: freed memory, and compiled products."""

import ctypes
import os
import sys

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""parameters of mallopt, as in malloc.h"""


def keep_cpu_memory() -> None:
    """Reuse freed memory and compiled matrix products from one update to the next.

    By default glibc returns freed memory to the kernel and later gets it back zeroed, which takes a
    fifth of an update: allocating a tensor of 40 MB costs seven times as much as copying it. oneDNN
    caches 1,024 compiled bfloat16 products of up to a megabyte, although no two batches have the
    same shape; the 64 that we allow are enough for one update. oneDNN reads this number at its
    first product, so a process that has computed one keeps its number.
    """
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "64")
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:  # musl has none
        if not mallopt(M_MMAP_THRESHOLD, 1 << 30):
            mallopt(M_MMAP_THRESHOLD, 32 << 20)  # the maximum in some versions
        mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
