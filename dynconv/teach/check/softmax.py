"""Checks of the exercises on the softmax of a kernel."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from dynconv import ops
from dynconv.teach.check.convolutions import on_cases
from dynconv.teach.compare import compare


def softmax_gradient(mine: Callable[..., Tensor]) -> None:
    """mine(x, logits, g, pad_left) is the gradient (H, K) of the logits; x and g (B, T, C)."""

    def theirs(x: Tensor, logits: Tensor, g: Tensor, pad_left: int) -> Tensor:
        out = ops.light_conv(x, ops.normalize_kernel(logits), pad_left=pad_left, impl="loop")
        return torch.autograd.grad(out, logits, g, create_graph=True)[0]

    for T in (1, 5, 12):
        for pad_left in (2, 4):
            seed = torch.Generator().manual_seed(T)
            x, g = torch.randn(2, 2, T, 6, generator=seed)
            logits = torch.randn(3, 5, generator=seed)
            options = {"pad_left": pad_left}
            try:
                compare(partial(mine, **options), partial(theirs, **options), x, logits, g)
            except AssertionError as error:
                raise AssertionError(f"T = {T}, pad_left = {pad_left}: {error}") from None
    print("right: the gradient and 3 gradients of it agree on 6 cases")


def renormalised(mine: Callable[..., Tensor]) -> None:
    """mine(x, logits, pad_left) is LightConv by a softmax over the taps that meet a position."""

    def theirs(x: Tensor, logits: Tensor, pad_left: int) -> Tensor:
        (T, C), (H, K) = x.shape[1:], logits.shape
        taps = torch.arange(T) - torch.arange(T)[:, None] + pad_left  # (T, T), of row t and s
        outside = (taps < 0) | (taps >= K)
        scores = logits[:, taps.clamp(0, K - 1)].masked_fill(outside, float("-inf"))  # (H, T, T)
        heads = x.unflatten(2, (H, C // H))  # (B, T, H, R)
        return torch.einsum("hts,bshr->bthr", scores.softmax(dim=2), heads).flatten(2)

    on_cases(mine, theirs, lambda T: (3, 5))
