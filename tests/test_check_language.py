"""The check of the exercise on adaptive softmax accepts the right, and says what is wrong."""

from itertools import pairwise

import pytest
import torch

from dynconv.teach import check
from dynconv.teach.check import language


def head_of(hidden, words, classes):
    return (hidden @ torch.cat([words[0], classes]).t()).log_softmax(-1)


def band_by_band(hidden, words, projections, classes):
    head = head_of(hidden, words, classes)
    start = len(words[0])
    best, found = head[:, :start].max(-1)
    for i, (P, E) in enumerate(zip(projections, words[1:], strict=True)):
        rows = (head[:, len(words[0]) + i] > best).nonzero().squeeze(1)
        tail = (hidden[rows] @ P @ E.t()).log_softmax(-1)
        value, place = (head[rows, len(words[0]) + i, None] + tail).max(-1)
        wins = value > best[rows]
        best[rows[wins]], found[rows[wins]] = value[wins], start + place[wins]
        start += len(E)
    return found


def all_of_it(hidden, words, projections, classes):
    V = len(words[0])
    head = head_of(hidden, words, classes)
    tails = [
        head[:, V + i, None] + (hidden @ P @ E.t()).log_softmax(-1)
        for i, (P, E) in enumerate(zip(projections, words[1:], strict=True))
    ]
    return torch.cat([head[:, :V], *tails], dim=-1).argmax(-1)


def where_a_class_leads(hidden, words, projections, classes):
    """As PyTorch's predict: all tails, of the rows whose likeliest row of the head is a class."""
    found = head_of(hidden, words, classes).argmax(-1)
    rows = found >= len(words[0])
    found[rows] = all_of_it(hidden[rows], words, projections, classes)
    return found


def row_by_row(hidden, words, projections, classes):
    if not len(hidden):
        return torch.empty(0, dtype=torch.int64)
    rows = [band_by_band(row[None], words, projections, classes) for row in hidden]
    return torch.cat(rows)


def of_the_head(hidden, words, projections, classes):
    return head_of(hidden, words, classes).argmax(-1)


def greedy(hidden, words, projections, classes):
    found = of_the_head(hidden, words, projections, classes)
    start, first = len(words[0]), found.clone()
    for i, (P, E) in enumerate(zip(projections, words[1:], strict=True)):
        own = first == len(words[0]) + i
        found[own] = start + (hidden[own] @ P @ E.t()).argmax(-1)
        start += len(E)
    return found


def places(hidden, words, projections, classes):
    found = all_of_it(hidden, words, projections, classes)
    start = len(words[0])
    for E in words[1:]:
        own = (found >= start) & (found < start + len(E))
        found = torch.where(own, found - start - 1000, found)
        start += len(E)
    return torch.where(found < 0, found + 1000, found)


def without_the_class(hidden, words, projections, classes):
    head = head_of(hidden, words, classes)[:, : len(words[0])]
    pairs = zip(projections, words[1:], strict=True)
    tails = [(hidden @ P @ E.t()).log_softmax(-1) for P, E in pairs]
    return torch.cat([head, *tails], dim=-1).argmax(-1)


def by_logits(hidden, words, projections, classes):
    tails = [
        hidden @ classes[i, :, None] + hidden @ P @ E.t()
        for i, (P, E) in enumerate(zip(projections, words[1:], strict=True))
    ]
    return torch.cat([hidden @ words[0].t(), *tails], dim=-1).argmax(-1)


@pytest.mark.parametrize("right", [band_by_band, where_a_class_leads, row_by_row])
def test_accepts(right, capsys):
    check.adaptive_argmax(right)
    assert capsys.readouterr().out.startswith("right: ")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda *bands: None, "a NoneType, not a tensor"),
        (lambda *bands: all_of_it(*bands)[:, None], r"shape \(64, 1\), not 64 types"),
        (lambda *bands: all_of_it(*bands).double(), "torch.float64 of shape"),
        (all_of_it, "multiplications, and .* are enough: .* the others need no tail"),
        (of_the_head, "the row of a class in the head is not a type"),
        (places, "the band's first type is to be added"),
        (greedy, "need not hold the likeliest word"),
        (without_the_class, r"p\(w \| band\) is to be multiplied by p\(band\)"),
        (by_logits, "a tail's logits need its own softmax"),
        (lambda *bands: all_of_it(*bands) * 0, r"row \d+ is 0, where type \d+ has p = 0.\d\d$"),
    ],
    ids=[
        "nothing",
        "shape",
        "dtype",
        "cost",
        "head",
        "places",
        "greedy",
        "no class",
        "logits",
        "zeros",
    ],
)
def test_rejects(wrong, message):
    with pytest.raises(AssertionError, match=message):
        check.adaptive_argmax(wrong)


def test_each_band_wins_somewhere():
    for seed, (edges, widths) in enumerate(language.CASES):
        bands = language._draw(edges, widths, seed)
        hidden = torch.randn(language.ROWS, 8, generator=torch.Generator().manual_seed(seed))
        right = all_of_it(hidden.double(), *bands)
        assert all(((right >= a) & (right < b)).sum() >= 3 for a, b in pairwise(edges))
        followed = greedy(hidden.double(), *bands)
        assert (followed != right).sum() >= 3
