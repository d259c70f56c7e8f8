"""Sets padding to zero, so that it reaches no sum over time."""

from torch import Tensor


def mask_padding(x: Tensor, pad_mask: Tensor | None) -> Tensor:
    """Return x (B, T, C) with zeros where pad_mask (B, T) is True."""
    return x if pad_mask is None else x.masked_fill(pad_mask.unsqueeze(-1), 0)
