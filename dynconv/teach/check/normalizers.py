"""The check of the exercise on normalisers."""

from collections.abc import Callable

import torch
from torch import Tensor


def sparsemax(mine: Callable[[Tensor], Tensor]) -> None:
    """mine(a) is the point of the simplex next to a, for each row of the last dimension."""
    for shape in ((4,), (3, 7), (2, 5, 3, 31)):
        for size in (0.1, 1.0, 30.0):
            seed = torch.Generator().manual_seed(len(shape))
            a = size * torch.randn(shape, generator=seed, dtype=torch.float64)
            try:
                _conditions(mine, a.requires_grad_(), seed)
            except AssertionError as error:
                raise AssertionError(f"a {shape}, scores of size {size:g}: {error}") from None
    print("right: values and gradients on 9 cases")


def _conditions(mine: Callable[[Tensor], Tensor], a: Tensor, seed: torch.Generator) -> None:
    """w >= 0, sum 1, and a - w the same on all taps with weight, no more on those without."""
    w = mine(a)
    if not isinstance(w, Tensor):
        raise AssertionError(f"mine returns {type(w).__name__}, not a tensor")
    if w.shape != a.shape:
        raise AssertionError(f"mine has shape {tuple(w.shape)}, not {tuple(a.shape)}")
    _refuse(w.isnan(), w, "a weight is not a number")
    _refuse(w < 0, w, "a weight is negative")
    sums = w.sum(dim=-1)
    _refuse((sums - 1).abs() > 1e-9, sums, "the weights of a kernel do not sum to 1")
    on = w > 0
    cut = a - w  # the same number, tau, wherever there is weight
    tau = cut.masked_fill(~on, -torch.inf).amax(dim=-1, keepdim=True)
    _refuse(on & (tau - cut > 1e-9), w, "a tap with weight is not its score less the tau of others")
    _refuse(~on & (a - tau > 1e-9), w, "a tap without weight has a score above tau")
    g = torch.randn(a.shape, generator=seed, dtype=a.dtype)
    if not w.requires_grad:
        raise AssertionError("no gradient flows back to the scores")
    (got,) = torch.autograd.grad(w, a, g)
    mean = (g * on).sum(dim=-1, keepdim=True) / on.sum(dim=-1, keepdim=True)
    wrong = ~torch.isclose(got, (g - mean) * on, rtol=1e-9, atol=1e-12)
    _refuse(wrong, got, "the gradient is not g less its mean over the taps with weight")


def _refuse(wrong: Tensor, values: Tensor, what: str) -> None:
    if wrong.any():
        at = wrong.nonzero()[0].tolist()
        where = f", first at {at}" if at else ""  # a single kernel has one sum
        raise AssertionError(f"{what}{where}: mine {values[tuple(at)]:.6g}")
