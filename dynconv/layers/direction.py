"""Lets operators that run from left to right also run from right to left."""

import torch
from torch import Tensor


def flip_rest(x: Tensor, kept: int) -> Tensor:
    """Return x (B, T, C) with all channels but the first `kept` reversed in time.

    Padding to the right then comes first. Where it is zero, a state that starts from zero is still
    zero at the first real position.
    """
    return x if kept == x.shape[2] else torch.cat([x[..., :kept], x[..., kept:].flip(1)], dim=-1)
