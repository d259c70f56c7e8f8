"""Brings tensors into the layouts and dtypes that the kernels expect, on the CPU as on a GPU."""

import torch
from torch import Tensor


def rows(x: Tensor) -> Tensor:
    """Return x (B, T, C) with contiguous channels; batch and time may have any strides."""
    return x if x.stride(2) == 1 else x.contiguous()


def taps(weight: Tensor) -> Tensor:
    """Return (H, K) or (B, T, H, K) with the taps of all heads of a position contiguous."""
    dense = weight.stride(-1) == 1 and weight.stride(-2) == weight.shape[-1]
    return weight if dense else weight.contiguous()


def accumulator(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype to add up in: float64 for float64, float32 otherwise."""
    return torch.promote_types(dtype, torch.float32)


def upcast(x: Tensor) -> Tensor:
    """Return x in its accumulator's dtype: at least float32."""
    return x.to(accumulator(x.dtype))


def offsets(x: Tensor | None) -> Tensor | None:
    """Return TaLK's offsets, contiguous, in at least float32: half precision cannot place edges."""
    return None if x is None else upcast(x).contiguous()
