"""Helpers for layers that decode step by step: rows of states, and loops over new positions."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn


def check_steppable(layer: nn.Module, causal: bool, x: Tensor) -> None:
    """Raise ValueError unless the layer is causal, and x (N, n, C) has a position to decode."""
    if not causal:
        raise ValueError(
            f"{type(layer).__name__}.step decodes from left to right, but this layer also looks at "
            "later positions: build it with causal=True (TaLKConv with max_right=0)"
        )
    if x.shape[1] == 0:
        raise ValueError(f"{type(layer).__name__}.step needs at least one new position")


def select_state(state: Any, rows: Tensor) -> Any:
    """Return the state of these rows; a row may appear several times.

    state  a named tuple of tensors with one row per sequence, or None in place of a tensor; or an
           object that has a method `select(rows)`
    """
    if hasattr(state, "select"):
        return state.select(rows)
    return type(state)(*(None if part is None else part.index_select(0, rows) for part in state))


def run_steps(
    step: Callable[..., tuple[Tensor, Tensor]], state: Tensor, *inputs: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the outputs (N, n, ...) of a recurrence at n positions, and the state after them.

    output, state = step(state, *inputs), for the inputs (N, ...) at one position after the other
    """
    outputs = []
    for each in zip(*(part.unbind(1) for part in inputs), strict=True):
        output, state = step(state, *each)
        outputs.append(output)
    return torch.stack(outputs, dim=1), state
