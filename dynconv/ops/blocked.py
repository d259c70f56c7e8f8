"""Splits a convolution into blocks of positions, to save memory or to fit into the cache."""

from collections.abc import Iterator

from torch import Tensor

BLOCK = 32
"""positions of a block: larger ones multiply more zeros, smaller ones are slow to multiply"""


def blocks(T: int, K: int, pad_left: int) -> Iterator[tuple[slice, slice, slice]]:
    """Yield the positions t of each block, the tokens s in their windows, and the tokens' columns.

    The windows of S positions span S + K - 1 columns; column 0 is token t.start - pad_left. Only
    tokens from 0 to T - 1 exist.
    """
    for start in range(0, T, BLOCK):
        t = slice(start, min(start + BLOCK, T))
        first = start - pad_left
        s = slice(max(0, first), min(T, t.stop + K - 1 - pad_left))
        yield t, s, slice(s.start - first, s.stop - first)


def diagonals(band: Tensor, K: int) -> Tensor:
    """Return a view (..., S, K) of (..., S, S + K - 1) whose entry [t, j] is band[t, t + j]."""
    return band.flatten(-2).unfold(-1, K, band.shape[-1] + 1)


def positions_in_cache(x: Tensor) -> int:
    """Return how many positions of (B, T, C) fit into 1 MB of float32, about a core's cache."""
    return max(1, 2**18 // max(1, x.shape[0] * x.shape[2]))
