"""The check of the exercise on adaptive softmax."""

from bisect import bisect_right
from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from dynconv.teach.check.inputs import left_alone

ROWS = 64
CASES = [((0, 6, 40, 100), (8, 4, 2)), ((0, 5, 80), (8, 4))]
"""edges and widths of the bands"""


class _Bands(NamedTuple):
    """An adaptive softmax, as the exercise is given it."""

    words: list[Tensor]
    """E_i (V_i, w_i) of each band"""
    projections: list[Tensor]
    """P_i (C, w_i) of each band but the first"""
    classes: Tensor
    """(bands - 1, C)"""


def adaptive_argmax(mine: Callable[..., Tensor]) -> None:
    """mine(hidden, words, projections, classes) is the likeliest type (N,) after hidden (N, C), and
    computes no band's softmax where its class is less likely than a word of the head."""
    for seed, (edges, widths) in enumerate(CASES):
        bands = _draw(edges, widths, seed)
        hidden = torch.randn(ROWS, widths[0], generator=torch.Generator().manual_seed(seed))
        below = _beaten(hidden, bands)
        for which, rows in {"all": hidden, "those without a tail": hidden[below]}.items():
            _values(mine, rows, bands, edges, f"bands {edges}, rows: {which}")
        _cost(mine, hidden, bands, int((~below).sum()))
    print(f"right: the likeliest of all types in {2 * len(CASES)} cases, and no tail in vain")


def _draw(edges: tuple[int, ...], widths: tuple[int, ...], seed: int) -> _Bands:
    """So sharp that each band wins in some rows, also where another band's class is likelier."""
    g = torch.Generator().manual_seed(seed + 29)
    words = [
        (1.0 if i == 0 else 2.0) * torch.randn(end - start, width, generator=g)
        for i, ((start, end), width) in enumerate(zip(pairwise(edges), widths, strict=True))
    ]
    projections = [torch.randn(widths[0], w, generator=g) / 2 for w in widths[1:]]
    classes = torch.randn(len(widths) - 1, widths[0], generator=g)
    return _Bands(words, projections, classes)


def _parts(hidden: Tensor, bands: _Bands) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Logits of the first band's words (N, V_0), of the classes (N, n), of each tail (N, V_i), in
    float64."""
    hidden, (E0, *words) = hidden.double(), [E.double() for E in bands.words]
    pairs = zip(bands.projections, words, strict=True)
    tails = [hidden @ P.double() @ E.t() for P, E in pairs]
    return hidden @ E0.t(), hidden @ bands.classes.double().t(), tails


def _beaten(hidden: Tensor, bands: _Bands) -> Tensor:
    """Rows (N,) in which a word of the head is likelier than every class."""
    words, classes, _ = _parts(hidden, bands)
    return words.max(-1).values > classes.max(-1).values


def _log_probabilities(hidden: Tensor, bands: _Bands) -> Tensor:
    words, classes, tails = _parts(hidden, bands)
    return _joined(torch.cat([words, classes], dim=-1).log_softmax(-1), tails)


def _joined(head: Tensor, tails: list[Tensor]) -> Tensor:
    """log p (N, V), of log p of words and classes (N, V_0 + n) and the logits of the tails."""
    words, *classes = head.split([head.shape[1] - len(tails)] + [1] * len(tails), dim=-1)
    pairs = zip(classes, tails, strict=True)
    return torch.cat([words, *(row + tail.log_softmax(-1) for row, tail in pairs)], dim=-1)


def _faults(hidden: Tensor, bands: _Bands, edges: tuple[int, ...]) -> dict[str, Tensor]:
    """What usual mistakes give, by what to say of them."""
    words, classes, tails = _parts(hidden, bands)
    right = _log_probabilities(hidden, bands).argmax(-1)
    head = torch.cat([words, classes], dim=-1)
    inner = [tail.log_softmax(-1) for tail in tails]
    greedy = chosen = head.argmax(-1)
    for i, tail in enumerate(tails):
        own = chosen == edges[1] + i
        greedy = torch.where(own, edges[i + 1] + tail.argmax(-1), greedy)
    first = torch.tensor(edges)
    start = first[torch.bucketize(right, first, right=True) - 1]
    behind = right >= edges[1]
    leads = classes == classes.amax(-1, keepdim=True)
    one = head.log_softmax(-1)
    one[:, edges[1] :].masked_fill_(~leads, -torch.inf)
    logits = [classes[:, i, None] + tail for i, tail in enumerate(tails)]
    return {
        "the row of a class in the head is not a type": chosen,
        "the band's first type is to be added to the place in the band": right - start,
        "each tail begins where the one before it ends":
            torch.where(behind, right - start + edges[1], right),
        "the first tail begins behind the words of the head":
            torch.where(behind, right - edges[1], right),
        "no tail is looked at": words.argmax(-1),
        "a band whose class is not the likeliest can hold the likeliest type":
            _joined(one, tails).argmax(-1),
        "softmax along dim 0 compares rows, not types":
            _joined(head.log_softmax(0), tails).argmax(-1),
        "the likeliest class need not hold the likeliest word: p(band) is shared by its words":
            greedy,
        "p(w | band) is to be multiplied by p(band)":
            torch.cat([head.log_softmax(-1)[:, : edges[1]], *inner], dim=-1).argmax(-1),
        "a tail's logits need its own softmax before they are compared":
            torch.cat([words, *logits], dim=-1).argmax(-1),
    }  # fmt: skip


def _values(mine, hidden: Tensor, bands: _Bands, edges: tuple[int, ...], case: str) -> None:
    words, projections = [[x.clone() for x in part] for part in bands[:2]]
    given = hidden.clone(), words, projections, bands.classes.clone()
    found = mine(*given)
    left_alone(("hidden", *bands._fields), given, (hidden, *bands))
    logp = _log_probabilities(hidden, bands)
    right = logp.argmax(-1)
    if not isinstance(found, Tensor):
        raise AssertionError(f"it returns a {type(found).__name__}, not a tensor")
    if found.shape != right.shape or found.dtype != right.dtype:
        kind = f"{found.dtype} of shape {tuple(found.shape)}"
        raise AssertionError(f"{case}: it returns {kind}, not {len(right)} types in int64")
    if (wrong := found != right).any():
        row = int(wrong.nonzero()[0])
        mine, best = int(found[row]), int(right[row])
        faults = _faults(hidden, bands, edges).items()
        why = next((name for name, output in faults if torch.equal(found, output)), None)
        why = why or _where(mine, best, edges)
        p = logp[row, best].exp()
        raise AssertionError(
            f"{case}: row {row} is {mine}, where type {best} has p = {p:.2f}: {why}"
        )


def _where(mine: int, right: int, edges: tuple[int, ...]) -> str:
    """How a wrong type lies to the right one."""
    if not 0 <= mine < edges[-1]:
        return f"types are 0 to {edges[-1] - 1}"
    of_mine, of_right = (bisect_right(edges, v) - 1 for v in (mine, right))
    if of_mine == of_right:
        return f"the right band, {of_right}, and the wrong place in it"
    if of_right == 0:
        return f"in band {of_mine}, p is that of the class times the softmax inside the band"
    row = edges[1] + of_right - 1
    return f"the right one is in band {of_right}, whose class is row {row} of the head"


def _cost(mine, hidden: Tensor, bands: _Bands, needed: int) -> None:
    with FlopCounterMode(display=False) as counter:
        mine(hidden, *bands)
    head = hidden.shape[1] * (len(bands.words[0]) + len(bands.classes))
    pairs = zip(bands.projections, bands.words[1:], strict=True)
    tails = sum(P.numel() + E.numel() for P, E in pairs)
    most = len(hidden) * head + needed * tails
    twice = most + len(hidden) * head  # the head may be computed again where a tail is
    if (count := counter.get_total_flops() // 2) > twice:
        raise AssertionError(
            f"{count:,} multiplications, and {most:,} are enough: {needed} of {len(hidden)} rows "
            "have a class likelier than every word of the head, and the others need no tail"
        )
