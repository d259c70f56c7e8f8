"""The check of the exercise on averages."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from dynconv.teach.check.cost import Cost
from dynconv.teach.compare import compare

MOST = 500
"""tensor operations, for 2,000 positions"""


def exponential_average(mine: Callable[..., Tensor]) -> None:
    """mine(x, decay) is m[t] = decay * m[t - 1] + (1 - decay) * x[t] from m = 0 on, without a loop
    over positions; x (B, T, C), decay a number in (0, 1)."""

    def theirs(x: Tensor, decay: float) -> Tensor:
        rows, mean = [], torch.zeros_like(x[:, 0])
        for t in range(x.shape[1]):
            mean = decay * mean + (1 - decay) * x[:, t]
            rows.append(mean)
        return torch.stack(rows, dim=1)

    cases = [(1, 0.9), (5, 0.9), (12, 0.5), (2000, 0.5)]  # 0.5 ** -2000 is no float64
    for T, decay in cases:
        x = torch.randn(2, T, 3, generator=torch.Generator().manual_seed(T))
        out = mine(x.double(), decay=decay)
        if not isinstance(out, Tensor):
            raise AssertionError(f"it returns a {type(out).__name__}, not a tensor")
        try:
            compare(partial(mine, decay=decay), partial(theirs, decay=decay), x)
        except AssertionError as error:
            right = theirs(x.double(), decay)
            near = out.shape == right.shape and torch.allclose(out.double(), right, 1e-5, 1e-6)
            why = "; as float32 they agree: mind the dtype" if near else ""
            raise AssertionError(f"T = {T}, decay = {decay}: {error}{why}") from None
    with Cost() as cost:
        mine(torch.zeros(1, 2000, 1), decay=0.5)
    if cost.operations > MOST:
        raise AssertionError(f"T = 2000: {cost.operations:,} operations, a loop over positions")
    print(f"right: values and 1 gradient agree on {len(cases)} cases, and no loop over positions")
