"""Implements torch.ops.dynconv.* for CPU tensors by calls to the C kernels."""

from collections.abc import Sequence

import torch
from torch import Tensor

from dynconv.kernels.cpu.build import load_library
from dynconv.kernels.layout import (
    MIN_VECTOR_CHANNELS,
    contiguous_channels,
    contiguous_offsets,
    contiguous_taps,
)
from dynconv.kernels.torch_library import implement

FORWARD, GRAD_INPUT, PER_CHANNEL = range(3)
"""values of `kind` in conv.c"""


def call_c(name: str, dtype: torch.dtype, *arguments: Tensor | int | None) -> None:
    """Call the C function compiled for a dtype, with the number of threads as its last argument.

    A tensor is passed as its address, None as a null pointer.
    """
    values = [z.data_ptr() if isinstance(z, Tensor) else z for z in arguments]
    getattr(load_library(dtype), name)(*values, torch.get_num_threads())


def conv(x: Tensor, weight: Tensor, pad_left: int) -> Tensor:
    return run_conv(FORWARD, x, weight, pad_left)


def conv_grad_input(g: Tensor, weight: Tensor, pad_left: int) -> Tensor:
    return run_conv(GRAD_INPUT, g, weight, weight.shape[-1] - 1 - pad_left)


def run_conv(kind: int, x: Tensor, weight: Tensor, pad_left: int) -> Tensor:
    """Call the C function conv."""
    x = contiguous_channels(x)
    (B, T, C), (H, K) = x.shape, weight.shape[-2:]
    y = torch.empty((B, T, C), dtype=x.dtype)
    if weight.dim() == 2 and C // H < MIN_VECTOR_CHANNELS:
        if kind == GRAD_INPUT:
            weight = weight.flip(1)
        weight = weight.repeat_interleave(C // H, dim=0).t().contiguous()  # (K, C)
        kind, H = PER_CHANNEL, 1
    else:
        weight = contiguous_taps(weight)
    strides = weight.stride()[:2] if weight.dim() == 4 else (0, 0)
    call_c("conv", x.dtype, kind, x, weight, y, B, T, C, H, K, pad_left, *x.stride()[:2], *strides)
    return y


def conv_grad_weight(g: Tensor, x: Tensor, shape: Sequence[int], pad_left: int) -> Tensor:
    g, x = contiguous_channels(g), contiguous_channels(x)
    (B, T, C), (H, K) = x.shape, shape[-2:]
    shared = len(shape) == 2
    R = C // H
    split = shared and R < MIN_VECTOR_CHANNELS  # one row per channel, summed over each head below
    dw = torch.empty((C, K) if split else shape, dtype=torch.float64 if shared else x.dtype)
    name = "conv_grad_weight_shared" if shared else "conv_grad_weight"
    sizes = B, T, C, C if split else H, K, pad_left
    call_c(name, x.dtype, g, x, dw, *sizes, *g.stride()[:2], *x.stride()[:2])
    return (dw.unflatten(0, (H, R)).sum(1) if split else dw).to(x.dtype)


def conv_backward(g: Tensor, x: Tensor, weight: Tensor, pad_left: int) -> tuple[Tensor, Tensor]:
    dx = conv_grad_input(g, weight, pad_left)
    return dx, conv_grad_weight(g, x, weight.shape, pad_left)


def talk_conv(
    x: Tensor, left: Tensor, right: Tensor | None, max_left: int, max_right: int
) -> Tensor:
    x, left = contiguous_channels(x), contiguous_offsets(left)
    right = None if right is None else contiguous_offsets(right)
    y = torch.empty(x.shape, dtype=x.dtype)
    sizes = *x.shape, left.shape[2], max_left, max_right
    call_c("talk_conv", x.dtype, x, left, right, y, *sizes, *x.stride()[:2])
    return y


def talk_conv_backward(
    g: Tensor, x: Tensor, left: Tensor, right: Tensor | None, max_left: int, max_right: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of x, left and right; the last one is empty when right is None."""
    g, x = contiguous_channels(g), contiguous_channels(x)
    left, right = contiguous_offsets(left), None if right is None else contiguous_offsets(right)
    dx = torch.empty(x.shape, dtype=x.dtype)
    dleft = torch.empty_like(left)
    dright = torch.empty_like(left[:0] if right is None else right)
    sizes = *x.shape, left.shape[2], max_left, max_right
    tensors = g, x, left, right, dx, dleft, dright
    call_c("talk_conv_backward", x.dtype, *tensors, *sizes, *g.stride()[:2], *x.stride()[:2])
    return dx, dleft, dright


def cumulative_mean(x: Tensor) -> Tensor:
    return call_mean(x, backward=False)


def cumulative_mean_backward(g: Tensor) -> Tensor:
    return call_mean(g, backward=True)


def call_mean(x: Tensor, backward: bool) -> Tensor:
    """Return the means of x, or x's gradient if x is the gradient of the means."""
    x = contiguous_channels(x)
    y = torch.empty(x.shape, dtype=x.dtype)
    call_c("cumulative_mean", x.dtype, backward, x, y, *x.shape, *x.stride()[:2])
    return y


def conv_step(past: Tensor, row_of: Tensor, weight: Tensor) -> Tensor:
    (N, H, K), (_, M, C) = weight.shape, past.shape
    past, row_of = past.contiguous(), row_of if row_of.stride(1) == 1 else row_of.contiguous()
    weight = weight if weight.stride(2) == 1 else weight.contiguous()
    y = torch.empty((N, C), dtype=past.dtype)
    strides = row_of.stride(0), *weight.stride()[:2]
    call_c("conv_step", past.dtype, past, row_of, weight, y, N, M, C, H, K, *strides)
    return y


implement(
    "CPU", conv, conv_grad_input, conv_grad_weight, conv_backward, talk_conv, talk_conv_backward,
    cumulative_mean, cumulative_mean_backward, conv_step,
)  # fmt: skip
