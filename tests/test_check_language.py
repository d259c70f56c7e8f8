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


def in_float64(hidden, words, projections, classes):
    words, projections = [[x.double() for x in part] for part in (words, projections)]
    return band_by_band(hidden.double(), words, projections, classes.double())


def by_the_likeliest_class(hidden, words, projections, classes):
    """Compares words with words, but looks at one tail a row."""
    head = head_of(hidden, words, classes)
    best, found = head[:, : len(words[0])].max(-1)
    first, start = head.argmax(-1), len(words[0])
    for i, (P, E) in enumerate(zip(projections, words[1:], strict=True)):
        row = len(words[0]) + i
        tail = (hidden @ P @ E.t()).log_softmax(-1) + head[:, row, None]
        value, place = tail.max(-1)
        found = torch.where((first == row) & (value > best), start + place, found)
        start += len(E)
    return found


def by_rows(hidden, words, projections, classes):
    """Softmax of the head along dim 0."""
    logits = hidden @ torch.cat([words[0], classes]).t()
    parts = logits.log_softmax(0).split([len(words[0])] + [1] * len(classes), dim=-1)
    tails = [
        part + (hidden @ P @ E.t()).log_softmax(-1)
        for part, P, E in zip(parts[1:], projections, words[1:], strict=True)
    ]
    return torch.cat([parts[0], *tails], dim=-1).argmax(-1)


def class_taken_away(hidden, words, projections, classes):
    """log p of the class with the wrong sign."""
    head = head_of(hidden, words, classes)
    tails = [
        (hidden @ P @ E.t()).log_softmax(-1) - head[:, len(words[0]) + i, None]
        for i, (P, E) in enumerate(zip(projections, words[1:], strict=True))
    ]
    return torch.cat([head[:, : len(words[0])], *tails], dim=-1).argmax(-1)


def moved(far):
    """Types of the tails, `far` off."""

    def wrong(hidden, words, projections, classes):
        found = all_of_it(hidden, words, projections, classes)
        return torch.where(found >= len(words[0]), found + far(words), found)

    return wrong


def behind_the_head(hidden, words, projections, classes):
    """All tails begin behind the words of the head."""
    found = all_of_it(hidden, words, projections, classes)
    start = len(words[0]) + len(words[1])
    return torch.where(found >= start, found - len(words[1]), found)


def changing(name):
    def wrong(hidden, words, projections, classes):
        found = band_by_band(hidden, words, projections, classes)
        if name == "all words":
            words.pop()
        given = {"hidden": hidden, "words": words[1], "projections": projections[0]}
        given.get(name, classes).mul_(2)
        return found

    return wrong


@pytest.mark.parametrize("right", [band_by_band, where_a_class_leads, row_by_row, in_float64])
def test_accepts(right, capsys):
    check.adaptive_argmax(right)
    assert capsys.readouterr().out.startswith("right: ")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda *bands: None, "a NoneType, not a tensor"),
        (lambda *bands: all_of_it(*bands)[:, None], r"shape \(64, 1\), not 64 types"),
        (lambda *bands: all_of_it(*bands).double(), "torch.float64 of shape"),
        (lambda *bands: all_of_it(*bands).int(), "torch.int32 of .*, not 64 types in int64"),
        (changing("hidden"), "it changes `hidden` in place"),
        (changing("words"), "it changes `words` in place"),
        (changing("all words"), "it changes `words` in place"),
        (changing("projections"), "it changes `projections` in place"),
        (changing("classes"), "it changes `classes` in place"),
        (by_the_likeliest_class, "a band whose class is not the likeliest can hold"),
        (lambda hidden, words, *_: (hidden @ words[0].t()).argmax(-1), "no tail is looked at"),
        (by_rows, "softmax along dim 0 compares rows, not types"),
        (class_taken_away, "the class times the softmax inside the band"),
        (behind_the_head, "each tail begins where the one before it ends"),
        (moved(lambda words: -len(words[0])), "begins behind the words of the head"),
        (moved(lambda words: 1), r"the right band, \d, and the wrong place in it"),
        (moved(lambda words: 1000), "types are 0 to 99"),
        (all_of_it, "multiplications, and .* are enough: .* the others need no tail"),
        (of_the_head, "the row of a class in the head is not a type"),
        (places, "the band's first type is to be added"),
        (greedy, "need not hold the likeliest word"),
        (without_the_class, r"p\(w \| band\) is to be multiplied by p\(band\)"),
        (by_logits, "a tail's logits need its own softmax"),
        (
            lambda *bands: all_of_it(*bands) * 0,
            r"row \d+ is 0, where type \d+ has p = 0.\d\d: the right one is in band 1",
        ),
    ],
    ids=[
        "nothing",
        "shape",
        "dtype",
        "int32",
        "hidden in place",
        "words in place",
        "words popped",
        "projections in place",
        "classes in place",
        "one tail",
        "no tail",
        "dim 0",
        "sign",
        "behind the head",
        "from 0",
        "off by one",
        "no types",
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
        right = all_of_it(hidden, *bands)
        assert all(((right >= a) & (right < b)).sum() >= 3 for a, b in pairwise(edges))
        followed = greedy(hidden, *bands)
        assert (followed != right).sum() >= 3


def test_the_likeliest_is_clear():
    """So float32 must find it, too."""
    for seed, (edges, widths) in enumerate(language.CASES):
        hidden = torch.randn(language.ROWS, 8, generator=torch.Generator().manual_seed(seed))
        logp = language._log_probabilities(hidden, language._draw(edges, widths, seed))
        first, second = logp.topk(2).values.unbind(-1)
        assert (first - second).min() > 0.01
