"""Turns autocast off around sums that need the dtype of their inputs, or a wider one."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor


def without_autocast(x: Tensor) -> AbstractContextManager:
    """Return a context without autocast on the device of x, which may be one that has none."""
    device = x.device.type
    if not torch.amp.is_autocast_available(device):
        return nullcontext()
    return torch.autocast(device, enabled=False)
