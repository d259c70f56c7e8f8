"""Defines the kernels as PyTorch operators, torch.ops.dynconv.*: signatures, shapes, gradients.

Nothing here knows a device: cpu/call.py and cuda/call.py provide the implementations.

The convolutions y = w * x are bilinear, and so are both gradients. Each of the three maps is the
derivative of the other two, to any order:

    conv              y,  from x and w
    conv_grad_input   dx, from g and w
    conv_grad_weight  dw, from g and x

Shapes: x, g (B, T, C); weight (H, K), or (B, T, H, K) where each position has its own; H = C is the
depthwise convolution. Only the inputs are saved for the backward pass.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from dynconv.kernels.layout import contiguous_offsets

library = torch.library.Library("dynconv", "DEF")
torch_ops = torch.ops.dynconv


def save_inputs(ctx, inputs, output) -> None:
    """Keep the tensors for the backward pass, and everything else in `ctx.sizes`."""
    tensors = [z for z in inputs if z is None or isinstance(z, Tensor)]
    ctx.sizes = inputs[len(tensors) :]
    ctx.save_for_backward(*tensors)


def save_direction(ctx, inputs, output) -> None:
    """Keep the flag of cumulative_mean alone, which is linear."""
    ctx.backward = inputs[1]


def like_first(x: Tensor, *others) -> Tensor:
    """Return an output of the first input's shape."""
    return x.new_empty(x.shape)


def define(signature: str, shapes: Callable = like_first, save: Callable = save_inputs) -> Callable:
    """Define an operator of PyTorch, and return a decorator for the function with its gradients.

    shapes  its outputs without their values, for torch.compile and torch.export
    save    keeps what the gradients need
    """
    name = f"dynconv::{signature.partition('(')[0]}"
    library.define(signature)
    torch.library.register_fake(name, shapes, lib=library)

    def differentiate(backward: Callable) -> Callable:
        torch.library.register_autograd(name, backward, setup_context=save, lib=library)
        return backward

    return differentiate


def implement(device: str, *functions: Callable) -> None:
    """Register functions as the operators of the same name for one device, "CPU" or "CUDA"."""
    for function in functions:
        library.impl(function.__name__, function, device)


def if_needed(ctx, index: int, function: Callable, *arguments):
    """Return the gradient of input `index`, or None if nothing depends on it."""
    return function(*arguments) if ctx.needs_input_grad[index] else None


@define("conv(Tensor x, Tensor weight, int pad_left) -> Tensor")
def differentiate_conv(ctx, g):
    (x, weight), (pad,) = ctx.saved_tensors, ctx.sizes
    if all(ctx.needs_input_grad[:2]):
        return *torch_ops.conv_backward(g, x, weight, pad), None
    dx = if_needed(ctx, 0, torch_ops.conv_grad_input, g, weight, pad)
    return dx, if_needed(ctx, 1, torch_ops.conv_grad_weight, g, x, weight.shape, pad), None


@define("conv_grad_input(Tensor g, Tensor weight, int pad_left) -> Tensor")
def differentiate_conv_grad_input(ctx, ddx):
    (g, weight), (pad,) = ctx.saved_tensors, ctx.sizes
    dg = if_needed(ctx, 0, torch_ops.conv, ddx, weight, pad)
    return dg, if_needed(ctx, 1, torch_ops.conv_grad_weight, g, ddx, weight.shape, pad), None


@define(
    "conv_grad_weight(Tensor g, Tensor x, SymInt[] shape, int pad_left) -> Tensor",
    lambda g, x, shape, pad_left: x.new_empty(shape),
)
def differentiate_conv_grad_weight(ctx, ddw):
    (g, x), (_, pad) = ctx.saved_tensors, ctx.sizes
    dg = if_needed(ctx, 0, torch_ops.conv, x, ddw, pad)
    return dg, if_needed(ctx, 1, torch_ops.conv_grad_input, g, ddw, pad), None, None


@define(
    "conv_backward(Tensor g, Tensor x, Tensor weight, int pad_left) -> (Tensor, Tensor)",
    lambda g, x, weight, pad_left: (g.new_empty(g.shape), x.new_empty(weight.shape)),
)
def differentiate_conv_backward(ctx, ddx, ddw):
    (g, x, weight), (pad,) = ctx.saved_tensors, ctx.sizes
    dg = torch_ops.conv(ddx, weight, pad) + torch_ops.conv(x, ddw, pad)
    dx = torch_ops.conv_grad_input(g, ddw, pad)
    return dg, dx, torch_ops.conv_grad_weight(g, ddx, weight.shape, pad), None


@define(
    "conv_softmax(Tensor x, Tensor logits, Tensor? seed, float dropout, int pad_left) -> Tensor"
)
def differentiate_conv_softmax(ctx, g):
    gradients = torch_ops.conv_softmax_backward(g, *ctx.saved_tensors, *ctx.sizes)
    return *gradients, None, None, None


@define(
    "conv_softmax_backward(Tensor g, Tensor x, Tensor logits, Tensor? seed, float dropout,"
    " int pad_left) -> (Tensor, Tensor)",
    lambda g, x, logits, *_: (x.new_empty(x.shape), logits.new_empty(logits.shape)),
)
def refuse_conv_softmax(ctx, *gradients):
    remedy = "use impl='separate'"
    raise NotImplementedError(f"dynamic_conv_softmax's kernel has no second derivative: {remedy}")


@define("talk(Tensor x, Tensor left, Tensor? right, int max_left, int max_right) -> Tensor")
def differentiate_talk(ctx, g):
    x, left, right = ctx.saved_tensors
    dx, dleft, dright = torch_ops.talk_backward(g, x, left, right, *ctx.sizes)
    dright = None if right is None else dright.to(right.dtype)
    return dx, dleft.to(left.dtype), dright, None, None


@define(
    "talk_backward(Tensor g, Tensor x, Tensor left, Tensor? right, int max_left, int max_right)"
    " -> (Tensor, Tensor, Tensor)",
    lambda g, x, left, right, max_left, max_right: (
        x.new_empty(x.shape),
        torch.empty_like(contiguous_offsets(left)),
        torch.empty_like(contiguous_offsets(left[:0] if right is None else right)),
    ),
)
def refuse_talk(ctx, *gradients):
    raise NotImplementedError("talk_conv's kernels have no second derivative: use impl='window'")


@define("cumulative_mean(Tensor x, bool backward) -> Tensor", save=save_direction)
def differentiate_cumulative_mean(ctx, g):
    return torch_ops.cumulative_mean(g, not ctx.backward), None


define(
    "step(Tensor past, Tensor at, Tensor weight) -> Tensor",
    lambda past, at, weight: past.new_empty(len(at), past.shape[2]),
)
