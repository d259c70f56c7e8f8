"""Comparisons of two functions that say where they part."""

from collections.abc import Callable

import torch
from torch import Tensor


def same(
    mine: Callable[..., Tensor],
    theirs: Callable[..., Tensor],
    *inputs: Tensor,
    rtol: float = 1e-9,
) -> None:
    """Compare values, and gradients for each floating input, in float64; print what agrees.

    AssertionError names the first index where they differ, and both numbers.
    """
    compare(mine, theirs, *inputs, rtol=rtol)
    count = sum(x.is_floating_point() for x in inputs)
    print(f"values and {count} gradient{'s' * (count != 1)} agree")


def compare(mine, theirs, *inputs: Tensor, rtol: float = 1e-9) -> None:
    inputs = [x.detach().double().requires_grad_() if x.is_floating_point() else x for x in inputs]
    leaves = [x for x in inputs if x.requires_grad]
    outputs = [f(*inputs) for f in (mine, theirs)]
    _equal("values", *outputs, rtol)
    seed = torch.Generator().manual_seed(0)
    g = torch.randn(outputs[1].shape, generator=seed, dtype=torch.float64)
    # The zeros tie each input to the output, also where no tap meets it: its gradient is then 0.
    gradients = [
        torch.autograd.grad(out + sum(0 * x.sum() for x in leaves), leaves, g) for out in outputs
    ]
    for i, pair in enumerate(zip(*gradients, strict=True)):
        _equal(f"gradients of floating input {i}", *pair, rtol)


def _equal(what: str, mine: Tensor, theirs: Tensor, rtol: float) -> None:
    if mine.shape != theirs.shape:
        raise AssertionError(f"{what}: mine has shape {tuple(mine.shape)}, not {(*theirs.shape,)}")
    # Sums in another order leave some 1e-16 where the terms cancel: hence the atol.
    wrong = ~torch.isclose(mine, theirs, rtol=rtol, atol=1e-12)
    if wrong.any():
        at = tuple(wrong.nonzero()[0].tolist())
        raise AssertionError(
            f"{what} differ first at {list(at)}: mine {mine[at]:.6g}, theirs {theirs[at]:.6g}"
        )
