"""Lets operators that run from left to right also run from right to left."""

import torch
from torch import Tensor


def count_forward(parts: int, noun: str, causal: bool) -> int:
    """Return how many of the heads or channels run from left to right: all if causal, else half.

    Raises ValueError if none would be left for the other direction.
    """
    if parts == 1 and not causal:
        raise ValueError(f"{noun} 1 can see only one direction: give at least 2")
    return parts if causal else parts - parts // 2


def flip_rest(x: Tensor, kept: int) -> Tensor:
    """Return x (B, T, C) with all channels but the first `kept` reversed in time.

    Padding to the right then comes first. Where it is zero, a state that starts from zero is still
    zero at the first real position.
    """
    return x if kept == x.shape[2] else torch.cat([x[..., :kept], x[..., kept:].flip(1)], dim=-1)
