"""Depthwise convolution (Wu et al. 2019, section 2), with one kernel per channel.

    out[b, t, c] = sum_j weight[c, j] * x[b, t + j - pad_left, c],   x = 0 outside [0, T)

This is equation (4.2) of the book. The paper counts j from 1 and indexes x at
i + j - ceil((k + 1) / 2). For odd k this is our t + j - k // 2, the centred window.
"""

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from dynconv.dtypes import accumulator_dtype
from dynconv.kernels import cuda_ops, torch_ops
from dynconv.ops.blocked import positions_in_cache
from dynconv.ops.checks import check_conv
from dynconv.ops.operator import Operator, Rule
from dynconv.ops.shapes import pad_time
from dynconv.ops.trilinear import trilinear_conv


def depthwise_conv_loop(x: Tensor, weight: Tensor, pad_left: int) -> Tensor:
    """Evaluate the equation one output position and one tap at a time: the oracle."""
    T = x.shape[1]
    rows = []
    for t in range(T):
        row = torch.zeros_like(x[:, t])
        for j in range(weight.shape[1]):
            s = t + j - pad_left
            if 0 <= s < T:
                row = row + weight[:, j] * x[:, s]
        rows.append(row)
    return torch.stack(rows, dim=1)


def depthwise_conv_shifted(x: Tensor, weight: Tensor, pad_left: int) -> Tensor:
    """Scale and add K shifted copies of the sequence."""
    T, K = x.shape[1], weight.shape[1]
    padded = pad_time(x, K, pad_left)  # (B, T + K - 1, C)
    return sum(weight[:, j] * padded[:, j : j + T] for j in range(K))  # type: ignore[return-value]


def depthwise_conv_conv1d(x: Tensor, weight: Tensor, pad_left: int) -> Tensor:
    """Call PyTorch's conv1d with one group per channel."""
    C, K = weight.shape
    padded = pad_time(x, K, pad_left).transpose(1, 2)  # (B, C, T + K - 1)
    return F.conv1d(padded, weight.unsqueeze(1), groups=C).transpose(1, 2)  # (B, T, C)


def channels_last_out(weight: Tensor, x: Tensor, pad_left: int) -> Tensor:
    """Convolve x as a one-row image in channels-last order, which needs no copy of (B, T, C)."""
    pad = max(pad_left, weight.shape[1] - 1 - pad_left)
    image, filters = x.transpose(1, 2).unsqueeze(2), weight[:, None, None]  # (B, C, 1, T)
    out = F.conv2d(image, filters, padding=(0, pad), groups=x.shape[2]).squeeze(2)
    return out.narrow(2, pad - pad_left, x.shape[1]).transpose(1, 2)  # (B, T, C)


def channels_last_grad_weight(g: Tensor, x: Tensor, pad_left: int, K: int) -> Tensor:
    """Sum each tap over as many positions as fit into the cache; conv2d is slower from K = 5."""
    padded = pad_time(x, K, pad_left)  # (B, T + K - 1, C)
    grad = g.new_zeros(x.shape[2], K, dtype=accumulator_dtype(g.dtype))
    size = positions_in_cache(x)
    for start, rows in zip(range(0, g.shape[1], size), g.split(size, dim=1), strict=True):
        for j in range(K):
            tokens = padded[:, start + j : start + j + rows.shape[1]]
            grad[:, j] += (rows * tokens).sum((0, 1), dtype=grad.dtype)
    return grad.to(g.dtype)


def channels_last_grad_input(g: Tensor, weight: Tensor, pad_left: int) -> Tensor:
    """Convolve g with the reversed kernels."""
    return channels_last_out(weight.flip(1), g, weight.shape[1] - 1 - pad_left)


def depthwise_conv_channels_last(x: Tensor, weight: Tensor, pad_left: int) -> Tensor:
    """Convolve in the memory order of x; saves only x and weight for the backward pass."""
    grad_weight = partial(channels_last_grad_weight, K=weight.shape[1])
    return trilinear_conv(
        channels_last_out, grad_weight, channels_last_grad_input, weight, x, pad_left
    )


OPERATOR = Operator(
    "depthwise_conv",
    {
        "loop": depthwise_conv_loop,
        "shifted": depthwise_conv_shifted,
        "conv1d": depthwise_conv_conv1d,
        "channels_last": depthwise_conv_channels_last,
        "cpu": torch_ops.conv,
        "cuda": cuda_ops.conv,
    },
    (Rule("channels_last"),),
    transformable_impl="shifted",
)


def depthwise_conv(x: Tensor, weight: Tensor, *, pad_left: int, impl: str = "auto") -> Tensor:
    """Convolve each channel with its own kernel (Wu et al. 2019, section 2).

    x         (B, T, C)  real
    weight    (C, K)
    pad_left  zeros before position 0: K // 2 in an encoder, K - 1 for a causal decoder
    returns   (B, T, C)  differentiable in x and weight

    Raises TypeError for mixed dtypes, and ValueError for shapes or a pad_left that do not fit, or
    when `impl` is unknown or cannot run.
    """
    check_conv(x, weight, pad_left, "CK")
    implementation = OPERATOR.choose(impl, x, x.shape[1], weight.shape[1])
    return implementation(x, weight, pad_left)
