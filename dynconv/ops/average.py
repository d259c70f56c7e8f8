"""The cumulative mean, core of averaging attention (Zhang et al. 2018, section 3):

    out[b, t, c] = (1 / (t + 1)) sum_{s <= t} x[b, s, c]
"""

import torch
from torch import Tensor

from dynconv.ops.checks import choose


def cumulative_mean_loop(x: Tensor) -> Tensor:
    """The oracle: the mean of every prefix."""
    return torch.stack([x[:, : t + 1].mean(dim=1) for t in range(x.shape[1])], dim=1)


def cumulative_mean_sum(x: Tensor) -> Tensor:
    """A running sum, divided by the number of its terms; the sum is at least float32."""
    total = x.to(torch.promote_types(x.dtype, torch.float32)).cumsum(dim=1)
    count = torch.arange(1, x.shape[1] + 1, device=x.device, dtype=total.dtype)
    return (total / count[:, None]).to(x.dtype)


IMPLEMENTATIONS = {"loop": cumulative_mean_loop, "sum": cumulative_mean_sum}


def cumulative_mean(x: Tensor, *, impl: str = "auto") -> Tensor:
    """The mean of each position and all before it; x and the result are (B, T, C).

    Differentiable in x. Raises ValueError when `impl` is unknown.
    """
    return choose(IMPLEMENTATIONS, "sum" if impl == "auto" else impl)(x)
