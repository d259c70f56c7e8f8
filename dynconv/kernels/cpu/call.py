"""Calls the C kernels: what torch.ops.dynconv.* does for tensors on the CPU."""

import torch
from torch import Tensor

from dynconv.kernels.cpu.build import library
from dynconv.kernels.layout import offsets, rows, taps
from dynconv.kernels.schema import implement

FORWARD, GRAD_INPUT, PER_CHANNEL = range(3)  # `kind` of conv.c
NARROW = 8  # below so many channels per head, vectors of channels with their own taps are faster


def conv(x: Tensor, weight: Tensor, pad_left: int) -> Tensor:
    return run_conv(FORWARD, x, weight, pad_left)


def conv_grad_input(g: Tensor, weight: Tensor, pad_left: int) -> Tensor:
    return run_conv(GRAD_INPUT, g, weight, weight.shape[-1] - 1 - pad_left)


def run_conv(kind: int, x: Tensor, weight: Tensor, pad_left: int) -> Tensor:
    """Call the C function conv."""
    x = rows(x)
    (B, T, C), (H, K) = x.shape, weight.shape[-2:]
    y = torch.empty((B, T, C), dtype=x.dtype)
    if weight.dim() == 2 and C // H < NARROW:
        if kind == GRAD_INPUT:
            weight = weight.flip(1)
        weight = weight.repeat_interleave(C // H, dim=0).t().contiguous()  # (K, C)
        kind, H = PER_CHANNEL, 1
    else:
        weight = taps(weight)
    strides = weight.stride()[:2] if weight.dim() == 4 else (0, 0)
    library(x.dtype).conv(
        kind, x.data_ptr(), weight.data_ptr(), y.data_ptr(), B, T, C, H, K, pad_left,
        x.stride(0), x.stride(1), *strides, torch.get_num_threads(),
    )  # fmt: skip
    return y


def conv_grad_weight(g: Tensor, x: Tensor, shape: list[int], pad_left: int) -> Tensor:
    g, x = rows(g), rows(x)
    (B, T, C), (H, K) = x.shape, shape[-2:]
    shared, R = len(shape) == 2, C // H
    split = shared and R < NARROW  # a row per channel; the rows of a head are added up below
    dw = torch.empty((C, K) if split else shape, dtype=torch.float64 if shared else x.dtype)
    kernels = library(x.dtype)
    function = kernels.conv_grad_weight_shared if shared else kernels.conv_grad_weight
    function(
        g.data_ptr(), x.data_ptr(), dw.data_ptr(), B, T, C, C if split else H, K, pad_left,
        g.stride(0), g.stride(1), x.stride(0), x.stride(1), torch.get_num_threads(),
    )  # fmt: skip
    return (dw.unflatten(0, (H, R)).sum(1) if split else dw).to(x.dtype)


def conv_backward(g: Tensor, x: Tensor, weight: Tensor, pad_left: int) -> tuple[Tensor, Tensor]:
    dx = conv_grad_input(g, weight, pad_left)
    return dx, conv_grad_weight(g, x, weight.shape, pad_left)


def talk(x: Tensor, left: Tensor, right: Tensor | None, max_left: int, max_right: int) -> Tensor:
    x = rows(x)
    B, T, C = x.shape
    y = torch.empty((B, T, C), dtype=x.dtype)
    left, right = offsets(x, left, right)
    library(x.dtype).talk(
        x.data_ptr(), left.data_ptr(), pointer(right), y.data_ptr(), B, T, C, left.shape[2],
        max_left, max_right, x.stride(0), x.stride(1), torch.get_num_threads(),
    )  # fmt: skip
    return y


def talk_backward(
    g: Tensor, x: Tensor, left: Tensor, right: Tensor | None, max_left: int, max_right: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of x, left and right; the last one is empty when right is None."""
    g, x, dtype = rows(g), rows(x), left.dtype
    B, T, C = x.shape
    left, right = offsets(x, left, right)
    dx, dleft = torch.empty((B, T, C), dtype=x.dtype), torch.empty_like(left)
    dright = torch.empty_like(left if right is not None else left[:0])
    library(x.dtype).talk_backward(
        g.data_ptr(), x.data_ptr(), left.data_ptr(), pointer(right), dx.data_ptr(),
        dleft.data_ptr(), dright.data_ptr(), B, T, C, left.shape[2], max_left, max_right,
        g.stride(0), g.stride(1), x.stride(0), x.stride(1), torch.get_num_threads(),
    )  # fmt: skip
    return dx, dleft.to(dtype), dright.to(dtype)


def pointer(x: Tensor | None) -> int | None:
    """Return the address of x's first number; None, a null pointer, for None."""
    return None if x is None else x.data_ptr()


def cumulative_mean(x: Tensor, backward: bool) -> Tensor:
    x = rows(x)
    B, T, C = x.shape
    y = torch.empty((B, T, C), dtype=x.dtype)
    library(x.dtype).cumulative_mean(
        backward, x.data_ptr(), y.data_ptr(), B, T, C, x.stride(0), x.stride(1),
        torch.get_num_threads(),
    )  # fmt: skip
    return y


def step(past: Tensor, at: Tensor, weight: Tensor) -> Tensor:
    (N, H, K), (_, M, C) = weight.shape, past.shape
    past, at = past.contiguous(), at if at.stride(1) == 1 else at.contiguous()
    weight = weight if weight.stride(2) == 1 else weight.contiguous()
    y = torch.empty((N, C), dtype=past.dtype)
    library(past.dtype).step(
        past.data_ptr(), at.data_ptr(), weight.data_ptr(), y.data_ptr(), N, M, C, H, K,
        at.stride(0), weight.stride(0), weight.stride(1), torch.get_num_threads(),
    )  # fmt: skip
    return y


implement(
    "CPU", conv, conv_grad_input, conv_grad_weight, conv_backward, talk, talk_backward,
    cumulative_mean, step,
)  # fmt: skip
