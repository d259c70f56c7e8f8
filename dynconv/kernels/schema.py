"""The kernels as operators of PyTorch, torch.ops.dynconv.*: signatures, shapes and gradients.

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

from dynconv.kernels.layout import offsets

library = torch.library.Library("dynconv", "DEF")
ops = torch.ops.dynconv


def save_inputs(ctx, inputs, output) -> None:
    """Keep the tensors for the backward pass, and everything else in `ctx.sizes`."""
    tensors = [z for z in inputs if z is None or isinstance(z, Tensor)]
    ctx.sizes = inputs[len(tensors) :]
    ctx.save_for_backward(*tensors)


def define(signature: str, shapes: Callable, backward: Callable | None = None, save=save_inputs):
    """Define an operator of PyTorch.

    shapes    its outputs without their values, for torch.compile and torch.export
    backward  the gradients of its inputs, from what `save` keeps
    """
    name = signature.partition("(")[0]
    library.define(signature)
    torch.library.register_fake(f"dynconv::{name}", shapes, lib=library)
    if backward:
        torch.library.register_autograd(
            f"dynconv::{name}", backward, setup_context=save, lib=library
        )


def implement(device: str, *functions: Callable) -> None:
    """Register functions as the operators of the same name for one device, "CPU" or "CUDA"."""
    for function in functions:
        library.impl(function.__name__, function, device)


def refuse(name: str, remedy: str) -> Callable:
    """Return a backward that raises NotImplementedError: there is no second derivative."""

    def backward(ctx, *gradients):
        raise NotImplementedError(f"{name}'s kernel has no second derivative: use {remedy}")

    return backward


def if_needed(ctx, index: int, function: Callable, *arguments):
    """Return the gradient of input `index`, or None if nothing depends on it."""
    return function(*arguments) if ctx.needs_input_grad[index] else None


def differentiate_conv(ctx, g):
    (x, weight), (pad,) = ctx.saved_tensors, ctx.sizes
    if all(ctx.needs_input_grad[:2]):
        return *ops.conv_backward(g, x, weight, pad), None
    dx = if_needed(ctx, 0, ops.conv_grad_input, g, weight, pad)
    return dx, if_needed(ctx, 1, ops.conv_grad_weight, g, x, weight.shape, pad), None


def differentiate_conv_grad_input(ctx, ddx):
    (g, weight), (pad,) = ctx.saved_tensors, ctx.sizes
    dg = if_needed(ctx, 0, ops.conv, ddx, weight, pad)
    return dg, if_needed(ctx, 1, ops.conv_grad_weight, g, ddx, weight.shape, pad), None


def differentiate_conv_grad_weight(ctx, ddw):
    (g, x), (_, pad) = ctx.saved_tensors, ctx.sizes
    dg = if_needed(ctx, 0, ops.conv, x, ddw, pad)
    return dg, if_needed(ctx, 1, ops.conv_grad_input, g, ddw, pad), None, None


def differentiate_conv_backward(ctx, ddx, ddw):
    (g, x, weight), (pad,) = ctx.saved_tensors, ctx.sizes
    dg = ops.conv(ddx, weight, pad) + ops.conv(x, ddw, pad)
    dx = ops.conv_grad_input(g, ddw, pad)
    return dg, dx, ops.conv_grad_weight(g, ddx, weight.shape, pad), None


def differentiate_conv_softmax(ctx, g):
    gradients = ops.conv_softmax_backward(g, *ctx.saved_tensors, *ctx.sizes)
    return *gradients, None, None, None


def differentiate_talk(ctx, g):
    x, left, right = ctx.saved_tensors
    dx, dleft, dright = ops.talk_backward(g, x, left, right, *ctx.sizes)
    dright = None if right is None else dright.to(right.dtype)
    return dx, dleft.to(left.dtype), dright, None, None


def save_direction(ctx, inputs, output) -> None:
    ctx.backward = inputs[1]


def differentiate_cumulative_mean(ctx, g):
    return ops.cumulative_mean(g, not ctx.backward), None


define(
    "conv(Tensor x, Tensor weight, int pad_left) -> Tensor",
    lambda x, weight, pad_left: x.new_empty(x.shape),
    differentiate_conv,
)
define(
    "conv_grad_input(Tensor g, Tensor weight, int pad_left) -> Tensor",
    lambda g, weight, pad_left: g.new_empty(g.shape),
    differentiate_conv_grad_input,
)
define(
    "conv_grad_weight(Tensor g, Tensor x, SymInt[] shape, int pad_left) -> Tensor",
    lambda g, x, shape, pad_left: x.new_empty(shape),
    differentiate_conv_grad_weight,
)
define(
    "conv_backward(Tensor g, Tensor x, Tensor weight, int pad_left) -> (Tensor, Tensor)",
    lambda g, x, weight, pad_left: (g.new_empty(g.shape), x.new_empty(weight.shape)),
    differentiate_conv_backward,
)
define(
    "conv_softmax(Tensor x, Tensor logits, Tensor? seed, float dropout, int pad_left) -> Tensor",
    lambda x, logits, seed, dropout, pad_left: x.new_empty(x.shape),
    differentiate_conv_softmax,
)
define(
    "conv_softmax_backward(Tensor g, Tensor x, Tensor logits, Tensor? seed, float dropout,"
    " int pad_left) -> (Tensor, Tensor)",
    lambda g, x, logits, *_: (x.new_empty(x.shape), logits.new_empty(logits.shape)),
    refuse("conv_softmax_backward", "impl='separate'"),
)
define(
    "talk(Tensor x, Tensor left, Tensor? right, int max_left, int max_right) -> Tensor",
    lambda x, left, right, max_left, max_right: x.new_empty(x.shape),
    differentiate_talk,
)
define(
    "talk_backward(Tensor g, Tensor x, Tensor left, Tensor? right, int max_left, int max_right)"
    " -> (Tensor, Tensor, Tensor)",
    lambda g, x, left, right, max_left, max_right: (
        x.new_empty(x.shape),
        torch.empty_like(offsets(left)),
        torch.empty_like(offsets(left[:0] if right is None else right)),
    ),
    refuse("talk_backward", "impl='window'"),
)
define(
    "cumulative_mean(Tensor x, bool backward) -> Tensor",
    lambda x, backward: x.new_empty(x.shape),
    differentiate_cumulative_mean,
    save_direction,
)
define(
    "step(Tensor past, Tensor at, Tensor weight) -> Tensor",
    lambda past, at, weight: past.new_empty(len(at), past.shape[2]),
)
