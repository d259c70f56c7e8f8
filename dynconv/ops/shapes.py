"""Pads the time axis, and splits channels into heads."""

import torch.nn.functional as F
from torch import Tensor


def pad_time(x: Tensor, kernel_size: int, pad_left: int) -> Tensor:
    """Pad x (B, T, C) with pad_left zeros on the left and K - 1 - pad_left on the right."""
    return F.pad(x, (0, 0, pad_left, kernel_size - 1 - pad_left))


def split_heads(x: Tensor, H: int) -> Tensor:
    """View x (B, T, C) as (B, H, T, R); head h has the channels from h R to (h + 1) R - 1."""
    return x.unflatten(2, (H, -1)).transpose(1, 2)
