"""The cumulative mean, the core of average attention (Zhang et al. 2018, section 3):

    out[b, t, c] = (1 / (t + 1)) sum_{s <= t} x[b, s, c]

This is equation (13.1) of the book. All positions so far weigh the same, so there is nothing to
learn.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from dynconv.dtypes import upcast
from dynconv.kernels import cuda_ops, torch_ops
from dynconv.ops.checks import check_sequence
from dynconv.ops.operator import Operator, Rule


def cumulative_mean_loop(x: Tensor) -> Tensor:
    """Average each prefix separately: the oracle."""
    return torch.stack([x[:, : t + 1].mean(dim=1) for t in range(x.shape[1])], dim=1)


def cumulative_mean_sum(x: Tensor) -> Tensor:
    """Divide a running sum in at least float32 by the number of its terms."""
    total = upcast(x).cumsum(dim=1)
    return (total / prefix_lengths(total)).to(x.dtype)


def prefix_lengths(x: Tensor) -> Tensor:
    """Return 1, 2, ... T as (T, 1): how many positions each mean covers."""
    return torch.arange(1, x.shape[1] + 1, device=x.device, dtype=x.dtype)[:, None]


class RunningSum(torch.autograd.Function):
    """Computes cumsum(dim=1) of (B, T, C) with about 2 sqrt(T) additions of whole slices.

    torch.cumsum is slower because it walks along each channel separately, with a stride of C.
    """

    @staticmethod
    def forward(ctx, x):
        T = x.shape[1]
        size = math.isqrt(T - 1) + 1  # sqrt(T), rounded up
        out = F.pad(x, (0, 0, 0, -T % size)).unflatten(1, (-1, size))  # a copy
        for i in range(1, size):  # inside each block
            out[:, :, i] += out[:, :, i - 1]
        for i in range(1, out.shape[1]):  # from block to block
            out[:, i] += out[:, i - 1, -1:]
        return out.flatten(1, 2)[:, :T]

    @staticmethod
    def backward(ctx, g):
        return RunningSum.apply(g.flip(1)).flip(1)


def cumulative_mean_blocked(x: Tensor) -> Tensor:
    """Compute the running sum in blocks; saves nothing for the backward pass."""
    total = RunningSum.apply(upcast(x))
    return (total / prefix_lengths(total)).to(x.dtype)


OPERATOR = Operator(
    "cumulative_mean",
    {
        "loop": cumulative_mean_loop,
        "sum": cumulative_mean_sum,
        "blocked": cumulative_mean_blocked,
        "cpu": torch_ops.cumulative_mean,  # which sums in float64
        "cuda": cuda_ops.cumulative_mean,  # which sums in short pieces
    },
    (Rule("blocked"),),
    transformable_impl="sum",
)


def cumulative_mean(x: Tensor, *, impl: str = "auto") -> Tensor:
    """Return the mean of each position and all earlier ones; x and the result are (B, T, C).

    Differentiable in x. Raises ValueError when `impl` is unknown or cannot run.
    """
    check_sequence(x)
    return OPERATOR.choose(impl, x, x.shape[1])(x)
