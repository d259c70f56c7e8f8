"""The dtype of sums, which may be wider than their terms' dtype, and autocast around them."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor


def accumulator(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype of sums: float64 for float64, otherwise float32."""
    return torch.promote_types(dtype, torch.float32)


def upcast(x: Tensor) -> Tensor:
    """Return x in the dtype of its sums, float32 or wider."""
    return x.to(accumulator(x.dtype))


def dtype_name(dtype: torch.dtype) -> str:
    """Return "float32" for torch.float32."""
    return str(dtype).removeprefix("torch.")


def to_autocast_dtype(x: Tensor) -> Tensor:
    """Return x in the dtype that a matrix product has under autocast, if that is on."""
    device = x.device.type
    on = torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)
    return x.to(torch.get_autocast_dtype(device)) if on else x


def without_autocast(x: Tensor) -> AbstractContextManager:
    """Return a context without autocast on the device of x, which may be one that has none."""
    device = x.device.type
    if not torch.amp.is_autocast_available(device):
        return nullcontext()
    return torch.autocast(device, enabled=False)
