"""Comparisons that say where two functions part, and the checks of the exercises."""

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from dynconv import ops


def same(
    mine: Callable[..., Tensor],
    theirs: Callable[..., Tensor],
    *inputs: Tensor,
    rtol: float = 1e-9,
) -> None:
    """Compare values, and gradients for each floating input, in float64; print what agrees.

    AssertionError names the first index where they differ, and both numbers.
    """
    _compare(mine, theirs, *inputs, rtol=rtol)
    count = sum(x.is_floating_point() for x in inputs)
    print(f"values and {count} gradient{'s' * (count != 1)} agree")


def _compare(mine, theirs, *inputs: Tensor, rtol: float = 1e-9) -> None:
    inputs = [x.detach().double().requires_grad_() if x.is_floating_point() else x for x in inputs]
    leaves = [x for x in inputs if x.requires_grad]
    outputs = [f(*inputs) for f in (mine, theirs)]
    _equal("values", *outputs, rtol)
    seed = torch.Generator().manual_seed(0)
    g = torch.randn(outputs[1].shape, generator=seed, dtype=torch.float64)
    # The zeros tie each input to the output, also where no tap meets it: its gradient is then 0.
    gradients = [
        torch.autograd.grad(out + sum(0 * x.sum() for x in leaves), leaves, g) for out in outputs
    ]
    for i, pair in enumerate(zip(*gradients, strict=True)):
        _equal(f"gradients of floating input {i}", *pair, rtol)


def _equal(what: str, mine: Tensor, theirs: Tensor, rtol: float) -> None:
    if mine.shape != theirs.shape:
        raise AssertionError(f"{what}: mine has shape {tuple(mine.shape)}, not {(*theirs.shape,)}")
    # Sums in another order leave some 1e-16 where the terms cancel: hence the atol.
    wrong = ~torch.isclose(mine, theirs, rtol=rtol, atol=1e-12)
    if wrong.any():
        at = tuple(wrong.nonzero()[0].tolist())
        raise AssertionError(
            f"{what} differ first at {list(at)}: mine {mine[at]:.6g}, theirs {theirs[at]:.6g}"
        )


def _exercise(mine, theirs, weight_shape, **fixed: int) -> None:
    """Compare on a short, a middling and a long sequence of 6 channels, for two paddings."""
    for T in (1, 5, 12):
        for pad_left in (2, 4):
            seed = torch.Generator().manual_seed(T)
            x = torch.randn(2, T, 6, generator=seed)
            weight = torch.randn(weight_shape(T), generator=seed)
            options = {"pad_left": pad_left, **fixed}
            try:
                _compare(partial(mine, **options), partial(theirs, **options), x, weight)
            except AssertionError as error:
                case = ", ".join(f"{name} = {value}" for name, value in options.items())
                raise AssertionError(f"T = {T}, {case}: {error}") from None
    print("right: values and 2 gradients agree on 6 cases")


def depthwise(mine: Callable[..., Tensor]) -> None:
    """mine(x, weight, pad_left) is a depthwise convolution: x (B, T, C), weight (C, K)."""
    _exercise(mine, partial(ops.depthwise_conv, impl="loop"), lambda T: (6, 5))


def light(mine: Callable[..., Tensor]) -> None:
    """mine(x, weight, pad_left) is LightConv: x (B, T, C), weight (H, K), normalised already."""
    _exercise(mine, partial(ops.light_conv, impl="loop"), lambda T: (3, 5))


def dynamic(mine: Callable[..., Tensor]) -> None:
    """mine(x, weight, pad_left) is DynamicConv: x (B, T, C), weight (B, T, H, K), normalised."""
    _exercise(mine, partial(ops.dynamic_conv, impl="loop"), lambda T: (2, T, 3, 5))


def dilated(mine: Callable[..., Tensor]) -> None:
    """mine(x, weight, pad_left, dilation) is depthwise with taps `dilation` positions apart."""

    def theirs(x: Tensor, weight: Tensor, pad_left: int, dilation: int) -> Tensor:
        C, K = weight.shape
        right = (K - 1) * dilation - pad_left
        padded = F.pad(x, (0, 0, pad_left, right)).transpose(1, 2)
        return F.conv1d(padded, weight.unsqueeze(1), groups=C, dilation=dilation).transpose(1, 2)

    _exercise(mine, theirs, lambda T: (6, 5), dilation=3)
