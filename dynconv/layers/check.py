"""Tries what a mixer promises: steps give what `forward` gives, and none sees padding or later."""

from collections.abc import Callable

import torch
from torch import Tensor, nn


def check_mixer(build: Callable[[bool], nn.Module], channels: int) -> None:
    """Raise AssertionError, whose line says what is wrong, unless a mixer does what it promises.

    build(causal)  returns a new layer of x (B, T, channels)

    Padding at either end changes no real position; in a causal layer no position sees a later one,
    `step` returns what `forward` does, in chunks of any size, and `select` takes rows of a state.
    Layers are tried in float64, after noise has been added to their parameters, because most leaks
    are multiples of a bias, which often starts as zero.
    """
    draw = torch.Generator().manual_seed(1)
    x = torch.randn(2, 9, channels, dtype=torch.float64, generator=draw)
    for causal in (False, True):
        layer = build(causal).double().eval()
        with torch.no_grad():
            for p in layer.parameters():
                p += 0.3 * torch.randn(p.shape, dtype=torch.float64, generator=draw)
            kind = f"{type(layer).__name__} with causal={causal}"
            check_padding(layer, x, kind)
            if causal:
                check_causal(layer, x, kind)


def check_padding(layer: nn.Module, x: Tensor, kind: str) -> None:
    """Check that what stands at padding, and how much of it there is, changes no real position."""
    if layer(x).shape != x.shape:
        raise AssertionError(f"{kind}: x {tuple(x.shape)} becomes {tuple(layer(x).shape)}")
    for side, real in {"right": slice(0, 6), "left": slice(3, None)}.items():
        pad_mask = torch.ones(2, 9, dtype=torch.bool)
        pad_mask[:, real] = False
        for content in (x, x.masked_fill(pad_mask.unsqueeze(-1), 7.0)):
            padded = layer(content, pad_mask)[:, real]
            expect(padded, layer(x[:, real]), f"{kind}: real positions see padding on the {side}")


def check_causal(layer: nn.Module, x: Tensor, kind: str) -> None:
    """Check a causal layer: positions see no later one, and steps give what `forward` gives."""
    whole, later = layer(x), x.clone()
    later[:, 5:] += 1
    expect(layer(later)[:, :5], whole[:, :5], f"{kind}: positions see later ones")
    for sizes in ([1] * 9, [4, 5], [2, 1, 6], [9]):
        state, parts = None, []
        for part in x.split(sizes, dim=1):
            y, state = layer.step(part, state)
            parts.append(y)
        expect(torch.cat(parts, 1), whole, f"{kind}: steps of {sizes} positions are not forward")
    _, state = layer.step(x[:, :4])
    rows = torch.tensor([1, 0, 0])
    y, _ = layer.step(x[rows, 4:], state.select(rows))
    expect(y, whole[rows, 4:], f"{kind}: a step after state.select(rows) is not that of the rows")


def expect(found: Tensor, expected: Tensor, fault: str) -> None:
    """Raise AssertionError with the fault, in one line, if two tensors differ."""
    if found.shape != expected.shape:
        raise AssertionError(f"{fault}: shape {tuple(found.shape)}, not {tuple(expected.shape)}")
    difference = (found - expected).abs().max().item()
    if not difference <= 1e-6 * (1 + expected.abs().max().item()):
        raise AssertionError(f"{fault}: the difference is {difference:.2g}")
