"""Activation checkpointing: less memory for more work (Chen et al. 2016)."""

from typing import Any

from torch import nn
from torch.utils.checkpoint import checkpoint


class Recomputable(nn.Module):
    """A module that can keep only its inputs for the backward pass, which then runs it again.

    The second run draws the same random numbers as the first, so gradients are equal bit for bit.
    """

    recomputed = False
    """whether the module recomputes its activations in train mode"""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.recomputed and self.training:
            return checkpoint(super().__call__, *args, use_reentrant=False, **kwargs)
        return super().__call__(*args, **kwargs)


def set_activation_checkpointing(model: nn.Module, enabled: bool) -> None:
    """Let every block of a model keep only its inputs for the backward pass, or all it needs."""
    for module in model.modules():
        if isinstance(module, Recomputable):
            module.recomputed = enabled
