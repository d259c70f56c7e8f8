"""Tensors that end or begin at a page of memory that must not be touched (Linux)."""

import ctypes
import mmap

import torch

LIBC = ctypes.CDLL(None, use_errno=True)
PAGE = mmap.PAGESIZE
at_start = False
kept: list[mmap.mmap] = []  # mapped as long as they are listed here


def tensor(shape, dtype=torch.float32) -> torch.Tensor:
    """Of NaN, or of -1."""
    n = torch.Size(shape).numel()
    size = max(1, n) * dtype.itemsize
    pages = -(-size // PAGE)
    memory = mmap.mmap(-1, (pages + 2) * PAGE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for border in (start, start + (pages + 1) * PAGE):
        assert LIBC.mprotect(ctypes.c_void_p(border), PAGE, 0) == 0
    offset = PAGE if at_start else (pages + 1) * PAGE - size
    kept.append(memory)
    z = torch.frombuffer(memory, dtype=dtype, count=max(1, n), offset=offset)
    return z[:n].view(tuple(shape)).fill_(torch.nan if dtype.is_floating_point else -1)


def copy(z: torch.Tensor) -> torch.Tensor:
    return tensor(z.shape, z.dtype).copy_(z)
