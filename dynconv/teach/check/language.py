"""The check of the exercise on adaptive softmax."""

from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

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
        hidden = hidden.double()
        below = _beaten(hidden, bands)
        for which, rows in {"all": hidden, "those without a tail": hidden[below]}.items():
            _values(mine, rows, bands, edges, f"bands {edges}, rows: {which}")
        _cost(mine, hidden, bands, int((~below).sum()))
    print(f"right: the likeliest of all types in {2 * len(CASES)} cases, and no tail in vain")


def _draw(edges: tuple[int, ...], widths: tuple[int, ...], seed: int) -> _Bands:
    """In float64, so sharp that each band wins in some rows."""
    g = torch.Generator().manual_seed(seed + 21)
    words = [
        (1.0 if i == 0 else 2.0) * torch.randn(end - start, width, generator=g).double()
        for i, ((start, end), width) in enumerate(zip(pairwise(edges), widths, strict=True))
    ]
    projections = [torch.randn(widths[0], w, generator=g).double() / 2 for w in widths[1:]]
    classes = torch.randn(len(widths) - 1, widths[0], generator=g).double()
    return _Bands(words, projections, classes)


def _parts(hidden: Tensor, bands: _Bands) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Logits of the first band's words (N, V_0), of the classes (N, n), of each tail (N, V_i)."""
    tails = [hidden @ P @ E.t() for P, E in zip(bands.projections, bands.words[1:], strict=True)]
    return hidden @ bands.words[0].t(), hidden @ bands.classes.t(), tails


def _beaten(hidden: Tensor, bands: _Bands) -> Tensor:
    """Rows (N,) in which a word of the head is likelier than every class."""
    words, classes, _ = _parts(hidden, bands)
    return words.max(-1).values > classes.max(-1).values


def _log_probabilities(hidden: Tensor, bands: _Bands) -> Tensor:
    words, classes, tails = _parts(hidden, bands)
    head = torch.cat([words, classes], dim=-1).log_softmax(-1)
    words, classes = head.split([words.shape[1], classes.shape[1]], dim=-1)
    tails = [classes[:, i, None] + tail.log_softmax(-1) for i, tail in enumerate(tails)]
    return torch.cat([words, *tails], dim=-1)


def _faults(hidden: Tensor, bands: _Bands, edges: tuple[int, ...]) -> dict[str, Tensor]:
    """What usual mistakes give, by what to say of them."""
    words, classes, tails = _parts(hidden, bands)
    right = _log_probabilities(hidden, bands).argmax(-1)
    head = torch.cat([words, classes], dim=-1)
    inner = [tail.log_softmax(-1) for tail in tails]
    greedy = head.argmax(-1)
    for i, tail in enumerate(tails):
        own = head.argmax(-1) == edges[1] + i
        greedy = torch.where(own, edges[i + 1] + tail.argmax(-1), greedy)
    start = sum(
        torch.where(right >= edge, edge, 0) - torch.where(right >= edge, before, 0)
        for before, edge in pairwise(edges[:-1])
    )
    logits = [classes[:, i, None] + tail for i, tail in enumerate(tails)]
    return {
        "the row of a class in the head is not a type": head.argmax(-1),
        "the band's first type is to be added to the place in the band": right - start,
        "the likeliest class need not hold the likeliest word: p(band) is shared by its words":
            greedy,
        "p(w | band) is to be multiplied by p(band)":
            torch.cat([head.log_softmax(-1)[:, : edges[1]], *inner], dim=-1).argmax(-1),
        "a tail's logits need its own softmax before they are compared":
            torch.cat([words, *logits], dim=-1).argmax(-1),
    }  # fmt: skip


def _values(mine, hidden: Tensor, bands: _Bands, edges: tuple[int, ...], case: str) -> None:
    found, logp = mine(hidden, *bands), _log_probabilities(hidden, bands)
    right = logp.argmax(-1)
    if not isinstance(found, Tensor):
        raise AssertionError(f"it returns a {type(found).__name__}, not a tensor")
    if found.shape != right.shape or found.is_floating_point():
        kind = f"{found.dtype} of shape {tuple(found.shape)}"
        raise AssertionError(f"{case}: it returns {kind}, not {len(right)} types")
    if (wrong := found != right).any():
        row = int(wrong.nonzero()[0])
        faults = _faults(hidden, bands, edges).items()
        why = next((f": {name}" for name, output in faults if torch.equal(found, output)), "")
        p = logp[row, right[row]].exp()
        raise AssertionError(
            f"{case}: row {row} is {found[row]}, where type {right[row]} has p = {p:.2f}{why}"
        )


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
