"""Pads the time axis, splits channels into heads, and counts positions that fit into the cache."""

import torch.nn.functional as F
from torch import Tensor


def pad_time(x: Tensor, kernel_size: int, pad_left: int) -> Tensor:
    """Pad x (B, T, C) with pad_left zeros on the left and K - 1 - pad_left on the right."""
    return F.pad(x, (0, 0, pad_left, kernel_size - 1 - pad_left))


def split_heads(x: Tensor, H: int) -> Tensor:
    """View x (B, T, C) as (B, H, T, R); head h has the channels from h R to (h + 1) R - 1."""
    return x.unflatten(2, (H, -1)).transpose(1, 2)


def positions_in_cache(x: Tensor) -> int:
    """Return how many positions of (B, T, C) fit into 1 MB of float32, about a core's cache."""
    return max(1, 2**18 // max(1, x.shape[0] * x.shape[2]))
