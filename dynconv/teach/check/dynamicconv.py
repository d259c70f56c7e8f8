"""Checks the exercises on DynamicConv: its step, sparsemax, and averages without a loop."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from dynconv.ops import dynamic_conv
from dynconv.teach.check.cost import Cost
from dynconv.teach.judge import Wrong, attempt, judge, label_sizes, labelled, require_type_of

MOST = 500
"""tensor operations, for 2,000 positions"""


class Step(NamedTuple):
    """What a step returns: the outputs (B, n, C), and the next state (B, K - 1, C)."""

    y: Tensor
    state: Tensor


def dynamic_step(mine: Callable[..., tuple[Tensor, Tensor]]) -> None:
    """mine(x, state, W, H) returns y (B, n, C) for n new positions, and the next state.

    A state (B, K - 1, C) is the last K - 1 inputs, zeros at first; W (H * K, C) gives the scores.
    """
    H, K, chunks = 3, 5, (1, 3, 1, 4)
    seed = torch.Generator().manual_seed(0)
    x, W = (torch.randn(s, generator=seed, dtype=torch.float64) for s in ((2, 9, 6), (H * K, 6)))
    full = dynamic_conv(x, (x @ W.T).unflatten(2, (H, K)).softmax(dim=-1), pad_left=K - 1)
    padded, start = pad(x, (0, 0, K - 1, 0)), 0
    for n in chunks:
        end = start + n
        state = padded[:, start : start + K - 1]
        right = Step(full[:, start:end], padded[:, end : end + K - 1])
        with labelled(f"chunk x[:, {start}:{end}]"):
            inputs = (x[:, start:end].clone(), state.clone(), W.clone(), H)
            got = require_type_of(attempt(partial(mine, *inputs)), right)
            for what, values, theirs in zip(right._fields, got, right, strict=True):
                refuse(f"{what} differs", values, ~torch.isclose(values, theirs))
        start = end
    print(f"right: outputs and states of {len(chunks)} chunks")


def sparsemax(mine: Callable[[Tensor], Tensor]) -> None:
    """mine(a) is the point of the simplex nearest to a, along the last dimension."""
    for shape in ((4,), (3, 7), (2, 5, 3, 31)):
        for size in (0.1, 1.0, 30.0):
            seed = torch.Generator().manual_seed(len(shape))
            a = size * torch.randn(shape, generator=seed, dtype=torch.float64)
            g = torch.randn(shape, generator=seed, dtype=torch.float64)
            with labelled(f"a {shape}, scores of size {size:g}"):
                check_nearest(mine, a.requires_grad_(), g)
    print("right: values and gradients on 9 cases")


def check_nearest(mine: Callable[[Tensor], Tensor], a: Tensor, g: Tensor) -> None:
    """Raise `Wrong` unless w = mine(a) is the nearest point, with the right gradient.

    w >= 0; its sum is 1; a - w is a constant wherever w > 0, and at most that elsewhere.
    """
    w = require_type_of(attempt(partial(mine, a)), a)
    sums = w.sum(dim=-1)
    on = w > 0
    cut = a - w  # the same number, tau, wherever there is weight
    tau = cut.masked_fill(~on, -torch.inf).amax(dim=-1, keepdim=True)
    conditions = (
        ("a weight is not a number", w, w.isnan()),
        ("a weight is negative", w, w < 0),
        ("the weights of a kernel do not sum to 1", sums, (sums - 1).abs() > 1e-9),
        ("a tap with weight is not its score less the tau of others", w, on & (tau - cut > 1e-9)),
        ("a tap without weight has a score above tau", w, ~on & (a - tau > 1e-9)),
    )
    for what, values, wrong in conditions:
        refuse(what, values, wrong)
    if not w.requires_grad:
        raise Wrong("no gradient flows back to the scores")
    (got,) = attempt(lambda: torch.autograd.grad(w, a, g))
    mean = (g * on).sum(dim=-1, keepdim=True) / on.sum(dim=-1, keepdim=True)
    wrong = ~torch.isclose(got, (g - mean) * on, rtol=1e-9, atol=1e-12)
    refuse("the gradient is not g less its mean over the taps with weight", got, wrong)


def refuse(what: str, values: Tensor, wrong: Tensor) -> None:
    """Raise `Wrong`, quoting the first of the marked values."""
    if wrong.any():
        at = wrong.nonzero()[0].tolist()
        where = f", first at {at}" if at else ""  # a single kernel has one sum
        raise Wrong(f"{what}{where}: mine {values[tuple(at)]:.6g}")


def exponential_average(mine: Callable[..., Tensor]) -> None:
    """mine(x, decay) is m[t] = decay * m[t - 1] + (1 - decay) * x[t] from m = 0 on, without a loop
    over positions; x (B, T, C), decay a number in (0, 1)."""

    def right(x: Tensor, *, decay: float) -> Tensor:
        rows, mean = [], torch.zeros_like(x[:, 0])
        for t in range(x.shape[1]):
            mean = decay * mean + (1 - decay) * x[:, t]
            rows.append(mean)
        return torch.stack(rows, dim=1)

    cases = {
        label_sizes(T=T, decay=decay): (
            torch.randn(2, T, 3, generator=torch.Generator().manual_seed(T)),
            decay,
        )
        for T, decay in ((1, 0.9), (5, 0.9), (12, 0.5), (2000, 0.5))  # 0.5 ** -2000 overflows
    }
    judge(mine, right, cases, gradients=True)
    with Cost() as cost:
        attempt(lambda: mine(torch.zeros(1, 2000, 1), decay=0.5))
    if cost.operations > MOST:
        raise Wrong(f"T = 2000: {cost.operations:,} operations, a loop over positions")
    print(f"right: values and 1 gradient agree on {len(cases)} cases, and no loop over positions")
