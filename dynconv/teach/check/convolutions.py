"""Checks of the exercises on convolutions."""

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from dynconv import ops
from dynconv.teach.compare import compare


def on_cases(mine, theirs, weight_shape, **fixed: int) -> None:
    """Compare on a short, a middling and a long sequence of 6 channels, for two paddings."""
    for T in (1, 5, 12):
        for pad_left in (2, 4):
            seed = torch.Generator().manual_seed(T)
            x = torch.randn(2, T, 6, generator=seed)
            weight = torch.randn(weight_shape(T), generator=seed)
            options = {"pad_left": pad_left, **fixed}
            try:
                compare(partial(mine, **options), partial(theirs, **options), x, weight)
            except AssertionError as error:
                case = ", ".join(f"{name} = {value}" for name, value in options.items())
                raise AssertionError(f"T = {T}, {case}: {error}") from None
    print("right: values and 2 gradients agree on 6 cases")


def depthwise(mine: Callable[..., Tensor]) -> None:
    """mine(x, weight, pad_left) is a depthwise convolution: x (B, T, C), weight (C, K)."""
    on_cases(mine, partial(ops.depthwise_conv, impl="loop"), lambda T: (6, 5))


def light(mine: Callable[..., Tensor]) -> None:
    """mine(x, weight, pad_left) is LightConv: x (B, T, C), weight (H, K), normalised already."""
    on_cases(mine, partial(ops.light_conv, impl="loop"), lambda T: (3, 5))


def dynamic(mine: Callable[..., Tensor]) -> None:
    """mine(x, weight, pad_left) is DynamicConv: x (B, T, C), weight (B, T, H, K), normalised."""
    on_cases(mine, partial(ops.dynamic_conv, impl="loop"), lambda T: (2, T, 3, 5))


def dilated(mine: Callable[..., Tensor]) -> None:
    """mine(x, weight, pad_left, dilation) is depthwise with taps `dilation` positions apart."""

    def theirs(x: Tensor, weight: Tensor, pad_left: int, dilation: int) -> Tensor:
        C, K = weight.shape
        right = (K - 1) * dilation - pad_left
        padded = F.pad(x, (0, 0, pad_left, right)).transpose(1, 2)
        return F.conv1d(padded, weight.unsqueeze(1), groups=C, dilation=dilation).transpose(1, 2)

    on_cases(mine, theirs, lambda T: (6, 5), dilation=3)


def light_gradient(mine: Callable[..., Tensor]) -> None:
    """mine(x, g, pad_left, H, K) is the gradient (H, K) of LightConv's weight; x, g (B, T, C)."""

    def theirs(x: Tensor, g: Tensor, pad_left: int, H: int, K: int) -> Tensor:
        weight = x.new_zeros(H, K, requires_grad=True)
        out = ops.light_conv(x, weight, pad_left=pad_left, impl="loop")
        return torch.autograd.grad(out, weight, g, create_graph=True)[0]

    on_cases(mine, theirs, lambda T: (2, T, 6), H=3, K=5)
