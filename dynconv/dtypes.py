"""Chooses the dtype that sums are computed in, and casts as autocast would."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor


def accumulator_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype in which numbers are added: float64 for float64, otherwise float32."""
    return torch.promote_types(dtype, torch.float32)


def upcast(x: Tensor) -> Tensor:
    """Return x in the dtype of its sums, float32 or wider."""
    return x.to(accumulator_dtype(x.dtype))


def dtype_name(dtype: torch.dtype) -> str:
    """Return "float32" for torch.float32."""
    return str(dtype).removeprefix("torch.")


def to_autocast_dtype(x: Tensor) -> Tensor:
    """Return x in autocast's dtype for matrix products, or unchanged where autocast is off."""
    device = x.device.type
    on = torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)
    return x.to(torch.get_autocast_dtype(device)) if on else x


def without_autocast(x: Tensor) -> AbstractContextManager:
    """Return a context that disables autocast on x's device, if autocast exists there."""
    device = x.device.type
    if not torch.amp.is_autocast_available(device):
        return nullcontext()
    return torch.autocast(device, enabled=False)
