"""Checks the exercises on TaLK: windows, gradients and widths."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from dynconv import ops
from dynconv.ops.talk import edge_distances, talk_conv_loop
from dynconv.teach.judge import FLOAT32, judge, label_sizes


def talk(mine: Callable[..., Tensor]) -> None:
    """mine(x, left, right, max_left, max_right) is a TaLK convolution: x (B, T, C), offsets
    (B, T, H); right is None where max_right is 0."""
    g = torch.Generator().manual_seed(15)

    def case(T: int, H: int, max_left: int, max_right: int, steps: int, inside: bool = False):
        """Return offsets in steps from 0 to 1; `inside`: only windows that need no clamping."""
        x = torch.randn(2, T, 6, generator=g, dtype=torch.float64)
        left, right = torch.randint(steps + 1, (2, 2, T, H), generator=g).double() / steps
        if inside:
            t = torch.arange(T)[:, None]
            left = torch.minimum(left, t / max_left)
            right = torch.minimum(right, (T - 1 - t) / max_right)
        return x, left, right if max_right else None, max_left, max_right

    cases = {
        "windows of whole words": case(9, 1, 2, 2, steps=2, inside=True),
        "edges inside of words": case(9, 1, 2, 2, steps=8, inside=True),
        "max_left 4, max_right 2": case(9, 1, 4, 2, steps=8, inside=True),
        "two heads": case(9, 2, 4, 2, steps=8, inside=True),
        "windows beyond both ends": case(5, 2, 8, 4, steps=8),
        "causal": case(9, 2, 4, 0, steps=8),
        "a sentence of one word": case(1, 3, 4, 4, steps=8),
    }
    judge(mine, talk_conv_loop, cases, window_faults, explain=explain_window, tolerance=FLOAT32)
    print(f"right: the values agree on {len(cases)} cases")


def window_ends(
    left: Tensor, right: Tensor, max_left: int, max_right: int
) -> tuple[Tensor, Tensor]:
    """Return where each window begins and ends (B, T, H), clamped to the sentence."""
    T = left.shape[1]
    t = torch.arange(T)[:, None]
    return (t - left * max_left).clamp(min=0), (t + 1 + right * max_right).clamp(max=T)


def overlap_lengths(begin: Tensor, end: Tensor) -> Tensor:
    """Return (B, T, H, T): the overlap of a window with word s, the interval s to s + 1.

    It is negative where they do not overlap.
    """
    s = torch.arange(begin.shape[1])
    return torch.minimum(end[..., None], s + 1) - torch.maximum(begin[..., None], s)


def window_faults(x: Tensor, left: Tensor, right: Tensor | None, *reach: int) -> Iterator:
    """Yield what common mistakes return, each with its correction."""
    (max_left, max_right), causal, K = reach, right is None, sum(reach) + 1
    right = torch.zeros_like(left) if causal else right
    begin, end = window_ends(left, right, *reach)
    (T, C), H = x.shape[1:], left.shape[2]
    s, t = torch.arange(T), torch.arange(T)[:, None]

    def weighted(share: Tensor, x: Tensor = x, interleaved: bool = False) -> Tensor:
        heads = [c % H if interleaved else c // (C // H) for c in range(C)]
        return torch.einsum("btcs,bsc->btc", share[:, :, heads], x) / K

    def mean(begin: Tensor, end: Tensor, **options) -> Tensor:
        return weighted(overlap_lengths(begin, end).clamp(min=0), **options)

    y = mean(begin, end)
    own = (end - begin).repeat_interleave(C // H, dim=2)
    yield "it is not divided by max_left + max_right + 1", y * K
    less = "it is divided by max_left + max_right: the word itself also counts"
    yield less, y * K / (K - 1)
    yield "divide by max_left + max_right + 1, not by the window's own width", y * K / own
    lost = "the word itself, the cell from t to t + 1, belongs to the window"
    yield lost, mean(begin, end - 1)
    yield lost, mean(begin + 1, end)
    if not causal:
        yield "left and right are exchanged", mean(*window_ends(right, left, *reach))
        swapped = window_ends(left, right, max_right, max_left)
        yield "max_left and max_right are exchanged", mean(*swapped)
    cut = "an edge is rounded to whole words: a word that it cuts counts in part"
    for low in (torch.floor, torch.ceil, torch.round):
        for high in (torch.floor, torch.ceil, torch.round):
            yield cut, mean(low(begin), high(end))
    yield cut, mean(t - (t - begin).round(), t + 1 + (end - t - 1).round())
    scale = "an offset is a share of max_left or max_right: multiply them"
    yield scale, mean(*window_ends(left, right, 1, 1))
    moved = "tap j meets the word t + j - max_left: pad_left is max_left"
    for pad_left in {0, max_right, K // 2, K - 1} - {max_left}:
        late = min(max(max_left - pad_left, -T), T)
        yield moved, mean(begin, end, x=F.pad(x, (0, 0, -late, late)))
    reached = ((s >= t - max_left) & (s <= t + max_right))[:, None]  # (T, 1, T)
    smaller = torch.minimum(s + 1 - begin[..., None], end[..., None] - s)
    for share in (overlap_lengths(begin, end), smaller, smaller.clamp(min=0), smaller.clamp(max=1)):
        yield "the share of a word lies between 0 and 1", weighted(share * reached)
    other = "channel c belongs to head c // (C // H), not c % H"
    yield other, mean(begin, end, interleaved=True)


def explain_window(
    mine: Tensor, expected: Tensor, x: Tensor, left: Tensor, right: Tensor | None, *reach: int
) -> str:
    """Return an explanation if only windows that cross the ends of the sentence are wrong."""
    t, T = torch.arange(x.shape[1])[:, None], x.shape[1]
    beyond = t < left * reach[0]
    if right is not None:
        beyond = beyond | (t + 1 + right * reach[1] > T)
    inside = ~beyond.repeat_interleave(x.shape[2] // left.shape[2], dim=2)
    if not torch.allclose(mine[inside].double(), expected[inside], *FLOAT32):
        return ""
    return "only where a window leaves the sentence: cut it at places 0 and T"


GRADIENT_TOLERANCE = 1e-9, 1e-11


class Gradients(NamedTuple):
    """What the backward pass of a TaLK convolution returns."""

    dx: Tensor
    dleft: Tensor
    dright: Tensor


def talk_gradient(mine: Callable[..., tuple[Tensor, Tensor, Tensor]]) -> None:
    """mine(g, x, left, right, max_left, max_right) is the gradients of x and of both offsets;
    g and x (B, T, C), offsets (B, T, H)."""
    cases = {}
    for T, H, max_left, max_right in ((7, 1, 3, 2), (9, 2, 4, 12), (5, 3, 15, 7), (1, 2, 3, 3)):
        seed = torch.Generator().manual_seed(T)
        g, x = torch.randn(2, 2, T, 6, generator=seed, dtype=torch.float64)
        left, right = torch.rand(2, 2, T, H, generator=seed, dtype=torch.float64)
        if T == 9:  # windows have whole and half distances
            left, right = ((8 * offset).round() / 8 for offset in (left, right))
        label = label_sizes(T=T, H=H, max_left=max_left, max_right=max_right)
        cases[label] = g, x, left, right, max_left, max_right
    judge(
        mine,
        gradients_of,
        cases,
        gradient_faults,
        explain=explain_gradients,
        tolerance=GRADIENT_TOLERANCE,
    )
    print(f"right: dx, dleft and dright agree on {len(cases)} cases")


def gradients_of(g, x, left, right, max_left, max_right) -> Gradients:
    """Return the three gradients, by autograd."""
    inputs = [z.clone().requires_grad_() for z in (x, left, right)]
    out = ops.talk_conv(*inputs, max_left=max_left, max_right=max_right, impl="loop")
    return Gradients(*torch.autograd.grad(out, inputs, g))


def gradient_faults(g, x, left, right, *reach) -> Iterator:
    """Yield the results of mistakes that each affect one of the gradients."""
    true = gradients_of(g, x, left, right, *reach)
    untransposed = ops.talk_conv(g, left, right, max_left=reach[0], max_right=reach[1])
    first = gradients_of(g, x, left[..., :1], right[..., :1], *reach)
    order = torch.arange(x.shape[2]).view(-1, left.shape[2]).T.flatten()  # by c % H
    moved = gradients_of(g[..., order], x[..., order], left, right, *reach)
    for why, dx in (
        ("divide by max_left + max_right + 1", true.dx * (1 + sum(reach))),
        ("the sign is turned", -true.dx),
        (
            "transpose the shares: a token gets the gradients of the windows around it",
            untransposed,
        ),
        ("each head has windows of its own", first.dx),
        ("channel c belongs to head c // R, with R = C / H", moved.dx[..., order.argsort()]),
    ):
        yield why, true._replace(dx=dx)
    for name in ("dleft", "dright"):
        for why, offset in offset_faults(name, getattr(true, name), g, x, left, right, *reach):
            yield why, true._replace(**{name: offset})


def side_of(name: str, *window) -> tuple[Tensor, Tensor]:
    """Return how far (B, T, H) windows reach to one side, with and without clamping."""
    *offsets, max_left, max_right = window
    side = ("dleft", "dright").index(name)
    return edge_distances(*window)[side], offsets[side] * (max_left, max_right)[side]


def offset_faults(name: str, right: Tensor, g, x, *window) -> Iterator:
    """Yield wrong gradients of one of the offsets."""
    *offsets, max_left, max_right = window
    sign, reach = (-1, max_left) if name == "dleft" else (1, max_right)
    K, T, C, H = max_left + max_right + 1, *x.shape[1:], offsets[0].shape[2]
    distance, _ = side_of(name, *window)
    yield "the sign is turned: a larger offset takes in more of its token", -right
    yield "divide by max_left + max_right + 1", right * K
    yield f"the edge moves {reach} tokens per unit of the offset", right / reach
    summed = right.sum(2, keepdim=True).expand_as(right)
    yield "a head sums over its own channels only", summed
    yield "sum over the channels of the head, instead of their mean", right * H / C
    products = (g[:, :, None] * x[:, None]).unflatten(3, (H, -1)).sum(4)  # (B, T, T, H)
    for further, why in ((0, "that token is in the window whole"), (2, "one token too far")):
        token = torch.arange(T)[:, None] + sign * (distance.floor().long() + further)  # (B, T, H)
        inside = (token >= 0) & (token < T) & (distance != distance.floor())
        value = products.gather(2, token.clamp(0, T - 1)[:, :, None])[:, :, 0] * reach / K
        yield why, value.where(inside, 0)


def explain_gradients(mine: Gradients, right: Gradients, g, x, *window) -> str:
    """Return where the gradient of an offset has to be 0, if it is wrong only there."""
    if not torch.allclose(mine.dx, right.dx, *GRADIENT_TOLERANCE):
        return ""
    name = "dright" if torch.allclose(mine.dleft, right.dleft, *GRADIENT_TOLERANCE) else "dleft"
    distance, uncut = side_of(name, *window)
    wrong = ~torch.isclose(getattr(mine, name), getattr(right, name), *FLOAT32)
    if not (wrong & (distance == uncut.clamp(min=0))).any():
        return "0 where the sentence ends before the window does"
    if not (wrong & (distance != distance.floor())).any():
        return "0 where the distance is whole"
    return ""


def true_width(mine: Callable[..., Tensor]) -> None:
    """mine(x, left, right, max_left, max_right) is the mean of each window.

    That is its sum divided by its width in words, fractions included. right is None if
    max_right == 0.
    """
    cases = {}
    # One head, several, causal, no window without a cut, one word.
    for T, H, *reach in ((9, 1, 4, 2), (9, 3, 4, 2), (9, 3, 5, 0), (5, 2, 15, 7), (1, 1, 2, 2)):
        seed = torch.Generator().manual_seed(T)
        x, left, right = (torch.rand(2, T, n, generator=seed).double() for n in (6, H, H))
        label = f"T = {T}, H = {H}, reaches {reach[0]} and {reach[1]}"
        cases[label] = x - 0.5, left, right if reach[1] else None, *reach
    detached = "the width also depends on the offsets: is it detached?"
    hints = {"left": detached, "right": detached}
    judge(mine, mean_of_window, cases, width_faults, gradients=True, hints=hints)
    print(f"right: values and the gradients of x and the offsets agree on {len(cases)} cases")


def mean_of_window(x, left, right, max_left, max_right) -> Tensor:
    """Return the mean of each window, computed by the package."""
    reaches = {"max_left": max_left, "max_right": max_right}
    total = (max_left + max_right + 1) * ops.talk_conv(x, left, right, **reaches, impl="band")
    width = sum(edge_distances(left, right, **reaches)) + 1
    return total / width.repeat_interleave(x.shape[2] // left.shape[2], dim=2)


def width_faults(x, left, right, max_left, max_right) -> Iterator:
    """Yield what common mistakes return."""
    window = left, right, max_left, max_right
    R, K = x.shape[2] // left.shape[2], max_left + max_right + 1
    width = sum(edge_distances(*window)) + 1  # (B, T, H)
    total = mean_of_window(x, *window) * width.repeat_interleave(R, dim=2)

    def over(width: Tensor) -> Tensor:
        return total / width.repeat_interleave(R, dim=2)

    yield "this is the sum, not divided", total
    yield "this divides by max_left + max_right + 1, as the paper does", total / K
    uncut = left * max_left + (0 if right is None else right * max_right) + 1
    yield "the width ignores that an end of the sentence cuts the window", over(uncut)
    twice = "this divides by K as well as by the width: talk_conv has divided by K"
    yield twice, over(width * K)
    heads = "each head has widths of its own, for the R channels next to each other"
    yield heads, total / width.repeat(1, 1, R)
    yield "the width lacks the word itself: add 1", over(width - 1)
    yield "the width is rounded to whole words", over(width.round())
