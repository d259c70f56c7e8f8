"""Chooses the dtype that sums are computed in."""

import torch
from torch import Tensor


def accumulator(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype to add up in: float64 for float64, float32 otherwise."""
    return torch.promote_types(dtype, torch.float32)


def upcast(x: Tensor) -> Tensor:
    """Return x in its accumulator's dtype: at least float32."""
    return x.to(accumulator(x.dtype))
