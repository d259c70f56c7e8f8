"""The kernels as operators of PyTorch, torch.ops.dynconv.*: autograd, compile, export.

PyTorch calls the C kernels for tensors on a CPU, the CUDA kernels for those on a GPU.

Three bilinear maps make up the convolutions (see cpu/conv.c), and each one's gradients are the
other two, to any order:

    mix         y = w * x
    transposed  dx, from g and w
    correlate   dw, from g and x

Shapes: x, g (B, T, C); weight (B, T, H, K), or (H, K) for one that is the same everywhere; H = C is
the depthwise convolution. Nothing is saved for backward but the inputs.
"""

import torch
from torch import Tensor

from dynconv.kernels import cuda
from dynconv.kernels.cuda import offsets, rows
from dynconv.kernels.native import library

FORWARD, TRANSPOSED, PER_CHANNEL = range(3)  # `kind` of cpu/conv.c
NARROW = 8  # below so many channels a head, vectors over channels with their own taps are faster

torch_library = torch.library.Library("dynconv", "DEF")
for schema in (
    "mix(Tensor x, Tensor weight, int pad_left) -> Tensor",
    "transposed(Tensor g, Tensor weight, int pad_left) -> Tensor",
    "correlate(Tensor g, Tensor x, SymInt[] shape, int pad_left) -> Tensor",
    "gradients(Tensor g, Tensor x, Tensor weight, int pad_left) -> (Tensor, Tensor)",
    "softmax_mix(Tensor x, Tensor logits, Tensor? seed, float dropout, int pad_left) -> Tensor",
    "softmax_mix_backward(Tensor g, Tensor x, Tensor logits, Tensor? seed, float dropout,"
    " int pad_left) -> (Tensor, Tensor)",
    "talk(Tensor x, Tensor left, Tensor? right, int max_left, int max_right) -> Tensor",
    "talk_backward(Tensor g, Tensor x, Tensor left, Tensor? right, int max_left, int max_right)"
    " -> (Tensor, Tensor, Tensor)",
    "cumulative_mean(Tensor x, bool backward) -> Tensor",
    "step(Tensor past, Tensor at, Tensor weight) -> Tensor",
):
    torch_library.define(schema)
ops = torch.ops.dynconv


def convolve(kind: int, x: Tensor, weight: Tensor, pad_left: int) -> Tensor:
    """Call the C function mix."""
    x = rows(x)
    (B, T, C), (H, K) = x.shape, weight.shape[-2:]
    y = torch.empty((B, T, C), dtype=x.dtype)
    strides = 0, 0
    if weight.dim() == 2 and C // H < NARROW:
        if kind == TRANSPOSED:
            weight = weight.flip(1)
        weight = weight.repeat_interleave(C // H, dim=0).t().contiguous()  # (K, C)
        kind, H = PER_CHANNEL, 1
    elif weight.stride(-1) != 1 or weight.stride(-2) != K:
        weight = weight.contiguous()
    if weight.dim() == 4:
        strides = weight.stride()[:2]
    library(x.dtype).mix(
        kind, x.data_ptr(), weight.data_ptr(), y.data_ptr(), B, T, C, H, K, pad_left,
        x.stride(0), x.stride(1), *strides, torch.get_num_threads(),
    )  # fmt: skip
    return y


def mix(x: Tensor, weight: Tensor, pad_left: int) -> Tensor:
    return convolve(FORWARD, x, weight, pad_left)


def transposed(g: Tensor, weight: Tensor, pad_left: int) -> Tensor:
    return convolve(TRANSPOSED, g, weight, weight.shape[-1] - 1 - pad_left)


def correlate(g: Tensor, x: Tensor, shape: list[int], pad_left: int) -> Tensor:
    g, x = rows(g), rows(x)
    (B, T, C), (H, K) = x.shape, shape[-2:]
    shared, R = len(shape) == 2, C // H
    split = shared and R < NARROW  # a row for each channel; a head's rows are added up below
    dw = torch.empty((C, K) if split else shape, dtype=torch.float64 if shared else x.dtype)
    function = library(x.dtype).correlate_shared if shared else library(x.dtype).correlate
    function(
        g.data_ptr(), x.data_ptr(), dw.data_ptr(), B, T, C, C if split else H, K, pad_left,
        g.stride(0), g.stride(1), x.stride(0), x.stride(1), torch.get_num_threads(),
    )  # fmt: skip
    return (dw.unflatten(0, (H, R)).sum(1) if split else dw).to(x.dtype)


def gradients(g: Tensor, x: Tensor, weight: Tensor, pad_left: int) -> tuple[Tensor, Tensor]:
    """dx and dw."""
    return transposed(g, weight, pad_left), correlate(g, x, weight.shape, pad_left)


def pointer(x: Tensor | None) -> int | None:
    return None if x is None else x.data_ptr()


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
    """Gradients of x, left and right; the last one is empty when right is None."""
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


for function in (
    mix, transposed, correlate, gradients, talk, talk_backward, cumulative_mean, step
):  # fmt: skip
    torch_library.impl(function.__name__, function, "CPU")
for function in (
    cuda.mix, cuda.transposed, cuda.correlate, cuda.gradients, cuda.talk, cuda.talk_backward,
    cuda.softmax_mix, cuda.softmax_mix_backward, cuda.cumulative_mean,
):  # fmt: skip
    torch_library.impl(function.__name__, function, "CUDA")

# What torch.compile and torch.export see: shapes and dtypes.
for name, fake in {
    "mix": lambda x, weight, pad_left: x.new_empty(x.shape),
    "transposed": lambda g, weight, pad_left: g.new_empty(g.shape),
    "correlate": lambda g, x, shape, pad_left: x.new_empty(shape),
    "gradients": lambda g, x, weight, pad_left: (g.new_empty(g.shape), x.new_empty(weight.shape)),
    "softmax_mix": lambda x, logits, seed, dropout, pad_left: x.new_empty(x.shape),
    "softmax_mix_backward": lambda g, x, logits, seed, dropout, pad_left: (
        x.new_empty(x.shape),
        logits.new_empty(logits.shape),
    ),
    "talk": lambda x, left, right, max_left, max_right: x.new_empty(x.shape),
    "talk_backward": lambda g, x, left, right, max_left, max_right: (
        x.new_empty(x.shape),
        left.new_empty(left.shape),
        left.new_empty(left.shape if right is not None else left[:0].shape),
    ),
    "cumulative_mean": lambda x, backward: x.new_empty(x.shape),
    "step": lambda past, at, weight: past.new_empty(len(at), past.shape[2]),
}.items():
    torch.library.register_fake(f"dynconv::{name}", fake, lib=torch_library)


def differentiable(name: str, save, backward) -> None:
    torch.library.register_autograd(
        f"dynconv::{name}", backward, setup_context=save, lib=torch_library
    )


def save_two(ctx, inputs, output) -> None:
    first, second, *ctx.rest = inputs
    ctx.save_for_backward(first, second)


def needed(ctx, index: int, function, *arguments):
    """The gradient of input `index`, if anybody asks for it."""
    return function(*arguments) if ctx.needs_input_grad[index] else None


def mix_backward(ctx, g):
    (x, weight), (pad,) = ctx.saved_tensors, ctx.rest
    if all(ctx.needs_input_grad[:2]):
        return *ops.gradients(g, x, weight, pad), None
    dx = needed(ctx, 0, ops.transposed, g, weight, pad)
    return dx, needed(ctx, 1, ops.correlate, g, x, weight.shape, pad), None


def transposed_backward(ctx, ddx):
    (g, weight), (pad,) = ctx.saved_tensors, ctx.rest
    dg = needed(ctx, 0, ops.mix, ddx, weight, pad)
    return dg, needed(ctx, 1, ops.correlate, g, ddx, weight.shape, pad), None


def correlate_backward(ctx, ddw):
    (g, x), (_, pad) = ctx.saved_tensors, ctx.rest
    dg = needed(ctx, 0, ops.mix, x, ddw, pad)
    return dg, needed(ctx, 1, ops.transposed, g, ddw, pad), None, None


def save_three(ctx, inputs, output) -> None:
    *tensors, ctx.pad = inputs
    ctx.save_for_backward(*tensors)


def gradients_backward(ctx, ddx, ddw):
    (g, x, weight), pad = ctx.saved_tensors, ctx.pad
    dg = ops.mix(ddx, weight, pad) + ops.mix(x, ddw, pad)
    return dg, ops.transposed(g, ddw, pad), ops.correlate(g, ddx, weight.shape, pad), None


differentiable("mix", save_two, mix_backward)
differentiable("gradients", save_three, gradients_backward)
differentiable("transposed", save_two, transposed_backward)
differentiable("correlate", save_two, correlate_backward)


def save_talk(ctx, inputs, output) -> None:
    *tensors, ctx.max_left, ctx.max_right = inputs
    ctx.save_for_backward(*tensors)


def talk_gradients(ctx, g):
    x, left, right = ctx.saved_tensors
    dx, dleft, dright = ops.talk_backward(g, x, left, right, ctx.max_left, ctx.max_right)
    return dx, dleft, None if right is None else dright, None, None


def once(name: str, remedy: str) -> None:
    """A second derivative is refused."""

    def refuse(ctx, *gradients):
        raise NotImplementedError(f"{name}'s kernel has no second derivative: use {remedy}")

    differentiable(name, lambda ctx, inputs, output: None, refuse)


differentiable("talk", save_talk, talk_gradients)
once("talk_backward", "impl='window'")


def save_softmax(ctx, inputs, output) -> None:
    x, logits, seed, ctx.dropout, ctx.pad = inputs
    ctx.save_for_backward(x, logits, seed)


def softmax_gradients(ctx, g):
    x, logits, seed = ctx.saved_tensors
    grads = ops.softmax_mix_backward(g, x, logits, seed, ctx.dropout, ctx.pad)
    return *grads, None, None, None


differentiable("softmax_mix", save_softmax, softmax_gradients)
once("softmax_mix_backward", "impl='separate'")


def save_direction(ctx, inputs, output) -> None:
    ctx.backward = inputs[1]


differentiable(
    "cumulative_mean",
    save_direction,
    lambda ctx, g: (ops.cumulative_mean(g, not ctx.backward), None),
)
