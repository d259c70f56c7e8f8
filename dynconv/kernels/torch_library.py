"""Defines the operators torch.ops.dynconv.*: their signatures, output shapes and gradients.

The definitions hold for all devices; cpu/call.py and cuda/call.py implement the operators.

A convolution y = w * x is bilinear, and so are its two gradients. Each of the three maps is
differentiated by the other two, to any order:

    conv              y,  from x and w
    conv_grad_input   dx, from g and w
    conv_grad_weight  dw, from g and x

x and g are (B, T, C). The weight is (H, K), or (B, T, H, K) with a kernel for each position; a
depthwise convolution has H = C. Only the inputs are saved for the backward pass.

A function differentiate_NAME takes as `run` the operators that it calls: torch_ops or, in eager
calls on a GPU, the kernels themselves, which saves the CPU the time of PyTorch's registry.
"""

from collections.abc import Callable, Iterable
from functools import partial
from types import SimpleNamespace

import torch
from torch import Tensor
from torch._C import _are_functorch_transforms_active
from torch._C._functorch import is_legacy_batchedtensor  # by is_grads_batched
from torch.autograd import forward_ad

from dynconv.kernels.layout import contiguous_offsets

BACKWARDS: dict[str, tuple[Callable, Callable]] = {}
"""the functions that save an operator's inputs and that differentiate it, keyed by its name"""
library = torch.library.Library("dynconv", "DEF")
torch_ops = torch.ops.dynconv


def save_inputs(tensors: int, ctx, inputs, output) -> None:
    """Save the tensors, which come first, for the backward pass, and the rest as `ctx.sizes`."""
    ctx.save_for_backward(*inputs[:tensors])
    ctx.sizes = inputs[tensors:]


def save_nothing(ctx, inputs, output) -> None:
    """Save nothing, because the operator is linear in its input."""


def like_first(x: Tensor, *others) -> Tensor:
    """Return an output of the first input's shape."""
    return x.new_empty(x.shape)


def define(signature: str, shapes: Callable = like_first, save: Callable | None = None) -> Callable:
    """Define a PyTorch operator, and return a decorator for its backward function.

    shapes  returns empty outputs, from which torch.compile and torch.export learn the shapes
    save    saves what the backward function needs, by default the inputs
    """
    name, _, inputs = signature.partition(" -> ")[0].partition("(")
    save = save or partial(save_inputs, inputs.count("Tensor"))
    library.define(signature)
    torch.library.register_fake(f"dynconv::{name}", shapes, lib=library)

    def differentiate(backward: Callable) -> Callable:
        registered = partial(backward, torch_ops)
        torch.library.register_autograd(
            f"dynconv::{name}", registered, setup_context=save, lib=library
        )
        BACKWARDS[name] = save, backward
        return backward

    return differentiate


def implement(device: str, *functions: Callable) -> None:
    """Register each function as the operator of its name on a device, "CPU" or "CUDA"."""
    for function in functions:
        library.impl(function.__name__, function, device)


def eager(kernels, names: Iterable[str]) -> SimpleNamespace:
    """Return the operators of these names for eager calls, which run `kernels` themselves.

    This takes half of the CPU time that PyTorch's registry does (data/results/bench-host.json).
    torch.compile, tensors without data, second derivatives and batches of gradients need the
    registered operators.
    """
    return SimpleNamespace(**{name: eager_operator(kernels, name) for name in names})


def eager_operator(kernels, name: str) -> Callable:
    """Return one of the operators for eager calls."""
    run, registered = getattr(kernels, name), getattr(torch_ops, name)
    save, differentiate = BACKWARDS[name]

    class Eager(torch.autograd.Function):
        @staticmethod
        def forward(ctx, *inputs):
            save(ctx, inputs, None)
            return run(*inputs)

        @staticmethod
        def backward(ctx, *gradients):
            again = torch.is_grad_enabled()  # for a second derivative
            batch = _are_functorch_transforms_active() or is_legacy_batchedtensor(gradients[0])
            return differentiate(torch_ops if again or batch else kernels, ctx, *gradients)

    # Function's own `apply` also prepares for torch.func, where no kernel is chosen.
    apply = super(torch.autograd.Function, Eager).apply

    def call(*inputs):
        if torch.compiler.is_compiling() or type(inputs[0]) is not Tensor:
            return registered(*inputs)
        return apply(*inputs)

    return call


def is_transformed() -> bool:
    """Return whether a transform of torch.func or forward-mode differentiation is active.

    A registered operator then runs once per example under vmap. It has no derivatives under
    torch.func.grad, and in forward mode PyTorch would leave its derivative out without an error.
    """
    if torch.compiler.is_compiling():  # which handles transforms itself
        return False
    return _are_functorch_transforms_active() or forward_ad._current_level >= 0


def if_needed(ctx, index: int, function: Callable, *arguments):
    """Return function(*arguments), the gradient of input `index`, or None if it is not needed."""
    return function(*arguments) if ctx.needs_input_grad[index] else None


@define("conv(Tensor x, Tensor weight, int pad_left) -> Tensor")
def differentiate_conv(run, ctx, g):
    (x, weight), (pad,) = ctx.saved_tensors, ctx.sizes
    if all(ctx.needs_input_grad[:2]):
        return *run.conv_backward(g, x, weight, pad), None
    dx = if_needed(ctx, 0, run.conv_grad_input, g, weight, pad)
    return dx, if_needed(ctx, 1, run.conv_grad_weight, g, x, weight.shape, pad), None


@define("conv_grad_input(Tensor g, Tensor weight, int pad_left) -> Tensor")
def differentiate_conv_grad_input(run, ctx, ddx):
    (g, weight), (pad,) = ctx.saved_tensors, ctx.sizes
    dg = if_needed(ctx, 0, run.conv, ddx, weight, pad)
    return dg, if_needed(ctx, 1, run.conv_grad_weight, g, ddx, weight.shape, pad), None


@define(
    "conv_grad_weight(Tensor g, Tensor x, SymInt[] shape, int pad_left) -> Tensor",
    lambda g, x, shape, pad_left: x.new_empty(shape),
)
def differentiate_conv_grad_weight(run, ctx, ddw):
    (g, x), (_, pad) = ctx.saved_tensors, ctx.sizes
    dg = if_needed(ctx, 0, run.conv, x, ddw, pad)
    return dg, if_needed(ctx, 1, run.conv_grad_input, g, ddw, pad), None, None


@define(
    "conv_backward(Tensor g, Tensor x, Tensor weight, int pad_left) -> (Tensor, Tensor)",
    lambda g, x, weight, pad_left: (g.new_empty(g.shape), x.new_empty(weight.shape)),
)
def differentiate_conv_backward(run, ctx, ddx, ddw):
    (g, x, weight), (pad,) = ctx.saved_tensors, ctx.sizes
    dg = run.conv(ddx, weight, pad) + run.conv(x, ddw, pad)
    dx = run.conv_grad_input(g, ddw, pad)
    return dg, dx, run.conv_grad_weight(g, ddx, weight.shape, pad), None


@define(
    "softmax_conv(Tensor x, Tensor logits, Tensor? seed, float dropout, int pad_left) -> Tensor"
)
def differentiate_softmax_conv(run, ctx, g):
    gradients = run.softmax_conv_backward(g, *ctx.saved_tensors, *ctx.sizes)
    return *gradients, None, None, None


@define(
    "softmax_conv_backward(Tensor g, Tensor x, Tensor logits, Tensor? seed, float dropout,"
    " int pad_left) -> (Tensor, Tensor)",
    lambda g, x, logits, *_: (x.new_empty(x.shape), logits.new_empty(logits.shape)),
)
def refuse_softmax_conv(run, ctx, *gradients):
    remedy = "use impl='separate'"
    raise NotImplementedError(f"softmax_conv's kernel has no second derivative: {remedy}")


@define("talk_conv(Tensor x, Tensor left, Tensor? right, int max_left, int max_right) -> Tensor")
def differentiate_talk_conv(run, ctx, g):
    x, left, right = ctx.saved_tensors
    dx, dleft, dright = run.talk_conv_backward(g, x, left, right, *ctx.sizes)
    return dx, dleft, None if right is None else dright, None, None  # autograd casts them


@define(
    "talk_conv_backward(Tensor g, Tensor x, Tensor left, Tensor? right, int max_left,"
    " int max_right) -> (Tensor, Tensor, Tensor)",
    lambda g, x, left, right, max_left, max_right: (
        x.new_empty(x.shape),
        torch.empty_like(contiguous_offsets(left)),
        torch.empty_like(contiguous_offsets(left[:0] if right is None else right)),
    ),
)
def refuse_talk_conv(run, ctx, *gradients):
    raise NotImplementedError("talk_conv's kernels have no second derivative: use impl='band'")


@define("cumulative_mean(Tensor x) -> Tensor", save=save_nothing)
def differentiate_cumulative_mean(run, ctx, g):
    return run.cumulative_mean_backward(g)


@define("cumulative_mean_backward(Tensor g) -> Tensor", save=save_nothing)
def differentiate_cumulative_mean_backward(run, ctx, ddx):
    return run.cumulative_mean(ddx)


define(
    "conv_step(Tensor past, Tensor row_of, Tensor weight) -> Tensor",
    lambda past, row_of, weight: past.new_empty(len(row_of), past.shape[2]),
)
