"""LightConv (Wu et al. 2019, section 3), with one kernel per head for all positions.

    out[b, t, c] = sum_j weight[head(c), j] * x[b, t + j - pad_left, c],   x = 0 outside [0, T)

This is equation (6.1) of the book. Neighbouring channels share a kernel: head(c) = c // (C // H).
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from dynconv.dtypes import accumulator_dtype
from dynconv.kernels import cuda_ops, torch_ops
from dynconv.ops.blocked import BLOCK, blocks, diagonals
from dynconv.ops.checks import check_conv
from dynconv.ops.depthwise import channels_last_grad_input, channels_last_out, depthwise_conv_conv1d
from dynconv.ops.dynamicconv import (
    dynamic_conv_band,
    dynamic_conv_blocked,
    dynamic_conv_shifted,
    dynamic_conv_unfold,
)
from dynconv.ops.operator import Operator, Rule
from dynconv.ops.trilinear import trilinear_conv


def light_conv_loop(x: Tensor, weight: Tensor, pad_left: int) -> Tensor:
    """Evaluate the equation one output position and one tap at a time: the oracle."""
    T, C = x.shape[1:]
    H, K = weight.shape
    rows = []
    for t in range(T):
        row = torch.zeros_like(x[:, t])
        for j in range(K):
            s = t + j - pad_left
            if 0 <= s < T:
                row = row + weight[:, j].repeat_interleave(C // H) * x[:, s]
        rows.append(row)
    return torch.stack(rows, dim=1)


def repeat_kernel(x: Tensor, weight: Tensor) -> Tensor:
    """Expand (H, K) to DynamicConv's (B, T, H, K), with the same kernel at every position."""
    return weight.expand(*x.shape[:2], *weight.shape)


def from_dynamic_conv(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return a LightConv that calls a DynamicConv with the same kernel at every position."""

    def run(x: Tensor, weight: Tensor, pad_left: int) -> Tensor:
        return function(x, repeat_kernel(x, weight), pad_left)

    return run


def kernel_of_channel(weight: Tensor, C: int) -> Tensor:
    """Repeat each head's kernel for its C / H channels: (H, K) to (C, K)."""
    return weight.repeat_interleave(C // weight.shape[0], dim=0)


def light_conv_conv1d(x: Tensor, weight: Tensor, pad_left: int) -> Tensor:
    """Call PyTorch's depthwise convolution; see `depthwise_conv_conv1d`."""
    return depthwise_conv_conv1d(x, kernel_of_channel(weight, x.shape[2]), pad_left)


def light_out(weight: Tensor, x: Tensor, pad_left: int) -> Tensor:
    """Return the convolution (B, T, C) of x with each head's kernel (H, K)."""
    return channels_last_out(kernel_of_channel(weight, x.shape[2]), x, pad_left)


def light_grad_weight(g: Tensor, x: Tensor, pad_left: int, H: int, K: int) -> Tensor:
    """Compute grad[j] = sum_t g[t] . x[s], where s = t + j - pad_left, in blocks of positions.

    The products g[t] . x[s] of a block form a matrix, and each tap is the sum of one diagonal.
    """
    S = min(BLOCK, g.shape[1])
    band = g.new_zeros(H, S, S + K - 1, dtype=accumulator_dtype(g.dtype))
    rows, tokens = (z.unflatten(2, (H, -1)).permute(2, 1, 0, 3) for z in (g, x))  # (H, T, B, R)
    for t, s, columns in blocks(g.shape[1], K, pad_left):
        band[:, : t.stop - t.start, columns] += rows[:, t].flatten(2) @ tokens[:, s].flatten(2).mT
    return diagonals(band, K).sum(1).to(g.dtype)  # (H, K)


def light_grad_input(g: Tensor, weight: Tensor, pad_left: int) -> Tensor:
    """Return the gradient (B, T, C) of x: g convolved with the reversed kernels."""
    return channels_last_grad_input(g, kernel_of_channel(weight, g.shape[2]), pad_left)


def light_conv_channels_last(x: Tensor, weight: Tensor, pad_left: int) -> Tensor:
    """Convolve in the memory order of x; see `depthwise_conv_channels_last`."""
    H, K = weight.shape
    grad_weight = partial(light_grad_weight, H=H, K=K)
    return trilinear_conv(light_out, grad_weight, light_grad_input, weight, x, pad_left)


OPERATOR = Operator(
    "light_conv",
    {
        "loop": light_conv_loop,
        "unfold": from_dynamic_conv(dynamic_conv_unfold),
        "band": from_dynamic_conv(dynamic_conv_band),
        "shifted": from_dynamic_conv(dynamic_conv_shifted),
        "blocked": from_dynamic_conv(dynamic_conv_blocked),
        "conv1d": light_conv_conv1d,
        "channels_last": light_conv_channels_last,
        "cpu": torch_ops.conv,
        "cuda": cuda_ops.conv,
    },
    (Rule("band", max_T=10), Rule("channels_last")),
    transformable_impl="shifted",
)


def light_conv(x: Tensor, weight: Tensor, *, pad_left: int, impl: str = "auto") -> Tensor:
    """Convolve each head's channels with one kernel (Wu et al. 2019, section 3).

    x         (B, T, C)  real
    weight    (H, K)     already normalised over K; channel c uses row c // (C // H)
    pad_left  zeros before position 0: K // 2 in an encoder, K - 1 for a causal decoder
    returns   (B, T, C)  differentiable in x and weight

    Raises the errors of `depthwise_conv`, and ValueError when H does not divide C.
    """
    check_conv(x, weight, pad_left, "HK")
    implementation = OPERATOR.choose(impl, x, x.shape[1], weight.shape[1])
    return implementation(x, weight, pad_left)
