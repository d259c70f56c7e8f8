"""Right and wrong answers to the exercises beyond translation."""

import re
from collections import Counter
from functools import cache, partial
from itertools import chain
from math import ceil
from statistics import NormalDist

import numpy as np
import torch

from dynconv.teach.check.beyond import SEED_FAULTS, Seeds


def head_of(hidden, words, classes, dim=-1):
    return (hidden @ torch.cat([words[0], classes]).t()).log_softmax(dim)


def tails_of(hidden, words, projections):
    pairs = zip(projections, words[1:], strict=True)
    return [(hidden @ P @ E.t()).log_softmax(-1) for P, E in pairs]


def all_of_it(hidden, words, projections, classes, dim=-1, of_class=1):
    """Every tail of every row; the options make mistakes."""
    V = len(words[0])
    head = head_of(hidden, words, classes, dim)
    tails = tails_of(hidden, words, projections)
    tails = [of_class * head[:, V + i, None] + tail for i, tail in enumerate(tails)]
    return torch.cat([head[:, :V], *tails], dim=-1).argmax(-1)


def band_by_band(hidden, words, projections, classes, one_tail=False):
    """The solution; or only the tail of the likeliest class."""
    head = head_of(hidden, words, classes)
    start = len(words[0])
    best, found = head[:, :start].max(-1)
    for i, (P, E) in enumerate(zip(projections, words[1:], strict=True)):
        row = len(words[0]) + i
        looked_at = head.argmax(-1) == row if one_tail else head[:, row] > best
        rows = looked_at.nonzero().squeeze(1)
        tail = (hidden[rows] @ P @ E.t()).log_softmax(-1)
        value, place = (head[rows, row, None] + tail).max(-1)
        wins = value > best[rows]
        best[rows[wins]], found[rows[wins]] = value[wins], start + place[wins]
        start += len(E)
    return found


def where_a_class_leads(hidden, words, projections, classes):
    """As PyTorch's predict: all tails, of the rows whose likeliest row of the head is a class."""
    found = head_of(hidden, words, classes).argmax(-1)
    rows = found >= len(words[0])
    found[rows] = all_of_it(hidden[rows], words, projections, classes)
    return found


def row_by_row(hidden, *bands):
    rows = [band_by_band(row[None], *bands) for row in hidden]
    return torch.cat([torch.empty(0, dtype=torch.int64), *rows])


def in_float64(hidden, words, projections, classes):
    words, projections = [[x.double() for x in part] for part in (words, projections)]
    return band_by_band(hidden.double(), words, projections, classes.double())


def greedy(hidden, words, projections, classes):
    found = head_of(hidden, words, classes).argmax(-1)
    start, first = len(words[0]), found.clone()
    for i, (P, E) in enumerate(zip(projections, words[1:], strict=True)):
        own = first == len(words[0]) + i
        found[own] = start + (hidden[own] @ P @ E.t()).argmax(-1)
        start += len(E)
    return found


def moved(far):
    """Types of the tails, `far(words, type)` off."""

    def answer(hidden, words, projections, classes):
        found = all_of_it(hidden, words, projections, classes)
        return torch.where(found >= len(words[0]), found + far(words, found), found)

    return answer


def starts(words, found):
    """The first type of each type's band."""
    first = torch.tensor([0, *map(len, words)]).cumsum(0)
    return first[torch.bucketize(found, first, right=True) - 1]


def by_logits(hidden, words, projections, classes):
    tails = [
        hidden @ classes[i, :, None] + hidden @ P @ E.t()
        for i, (P, E) in enumerate(zip(projections, words[1:], strict=True))
    ]
    return torch.cat([hidden @ words[0].t(), *tails], dim=-1).argmax(-1)


def changing(name):
    def answer(hidden, words, projections, classes):
        found = band_by_band(hidden, words, projections, classes)
        if name == "all words":
            words.pop()
        given = {"hidden": hidden, "words": words[1], "projections": projections[0]}
        given.get(name, classes).mul_(2)
        return found

    return answer


def places(h, r, forward=False):
    """Of a longest common subsequence in r: the last such, or with `forward` the first."""

    @cache
    def best(i, j):
        if i == len(h) or j == len(r):
            return ()
        if h[i] == r[j]:
            return (j, *best(i + 1, j + 1))
        return max(best(i + 1, j), best(i, j + 1), key=len)

    if forward:
        return best(0, 0)
    turned = places(h[::-1], r[::-1], forward=True)
    return tuple(len(r) - 1 - j for j in turned)


def parts(hits, hypothesis, reference):
    m, n = (sum(map(len, side)) for side in (hypothesis, reference))
    P, R = (hits / size if size else 0 for size in (m, n))
    return P, R, 2 * P * R / (P + R) if hits else 0


def early(h, r):
    """Each word at its first place behind the last one: not the longest."""
    found = []
    for word in h:
        start = found[-1] + 1 if found else 0
        if word in r[start:]:
            found.append(r.index(word, start))
    return found


def by_counts(hypothesis, reference, places=places):
    """Matched words of all sentences in one bag, clipped at the end."""
    found = Counter()
    for r in reference:
        union = {j for h in hypothesis for j in places(h, r)}
        found += Counter(r[j] for j in union)
    return parts((found & Counter(chain(*hypothesis))).total(), hypothesis, reference)


def by_walking(hypothesis, reference):
    """Each copy of a word is crossed out when it is used; returns a list."""
    left, hits = [*chain(*hypothesis)], 0
    for r in reference:
        for j in sorted({j for h in hypothesis for j in places(h, r)}):
            if r[j] in left:
                left.remove(r[j])
                hits += 1
    return [*parts(hits, hypothesis, reference)]


def counted(count):
    """The places of each sentence of the reference, for each of the hypothesis, as one number."""

    def answer(hypothesis, reference):
        matched = [[places(h, r) for h in hypothesis] for r in reference]
        return parts(count(matched, reference), hypothesis, reference)

    return answer


def bag(h, r):
    return parts((Counter(chain(*h)) & Counter(chain(*r))).total(), h, r)


def emptied(hypothesis, reference):
    found = by_walking(hypothesis, reference)
    hypothesis[0].clear() if hypothesis else None
    return found


def divided(h, r):
    P, R, _ = by_walking(h, r)
    return P, R, 2 * P * R / (P + R)


def by_hand(delta, sigma, power=0.8):
    z = NormalDist().inv_cdf
    return max(2, ceil(2 * ((z(0.975) + z(power)) * sigma / delta) ** 2))


def by_trying(delta, sigma, power=0.8):
    n, z = 2, NormalDist().inv_cdf
    while delta / (2 / n) ** 0.5 / sigma < z(0.975) + z(power):
        n += 1
    return n


RIGHT = {
    "adaptive_argmax": [band_by_band, where_a_class_leads, row_by_row, in_float64],
    "rouge_l": [
        by_counts,
        by_walking,
        lambda h, r: np.array(by_walking(h, r)),
        partial(by_counts, places=partial(places, forward=True)),
    ],
    "seeds_needed": [
        by_hand,
        by_trying,
        lambda *case: float(by_hand(*case)),
        lambda *case: np.int64(by_hand(*case)),
        lambda *case: torch.tensor(by_hand(*case)),
    ],
}
WRONG = {
    "adaptive_argmax": [
        (lambda *bands: all_of_it(*bands)[:, None], r"shape \(64, 1\), not \(64,\)"),
        (lambda *bands: all_of_it(*bands).double(), "torch.float64, not torch.int64"),
        (lambda *bands: all_of_it(*bands).int(), "torch.int32, not torch.int64"),
        (changing("hidden"), "it changes `hidden` in place"),
        (changing("words"), "it changes `words` in place"),
        (changing("all words"), "it changes `words` in place"),
        (changing("projections"), "it changes `projections` in place"),
        (changing("classes"), "it changes `classes` in place"),
        (partial(band_by_band, one_tail=True), "a band whose class is not the likeliest can hold"),
        (lambda hidden, words, *_: (hidden @ words[0].t()).argmax(-1), "no tail is looked at"),
        (partial(all_of_it, dim=0), "softmax along dim 0 compares rows, not types"),
        (partial(all_of_it, of_class=-1), "the class times the softmax inside the band"),
        (
            moved(lambda words, found: len(words[0]) - starts(words, found)),
            "each tail begins where the one before it ends",
        ),
        (moved(lambda words, found: -len(words[0])), "begins behind the words of the head"),
        (moved(lambda words, found: 1), r"the right band, \d, and the wrong place in it"),
        (moved(lambda words, found: 1000), "types are 0 to 99"),
        (all_of_it, "multiplications, and .* are enough: .* the others need no tail"),
        (
            lambda hidden, words, _, classes: head_of(hidden, words, classes).argmax(-1),
            "the row of a class in the head is not a type",
        ),
        (moved(lambda words, found: -starts(words, found)), "band's first type is to be added"),
        (greedy, "need not hold the likeliest word"),
        (partial(all_of_it, of_class=0), r"p\(w \| band\) is to be multiplied by p\(band\)"),
        (by_logits, "a tail's logits need its own softmax"),
        (
            lambda *bands: all_of_it(*bands) * 0,
            r"mine 0, right \d+; type \d+ has p = 0.\d\d: the right one is in band 1",
        ),
    ],
    "rouge_l": [
        (lambda h, r: by_walking(h, r)[2], r"a float, not \(precision, recall, F\)"),
        (
            lambda h, r: by_walking([[*chain(*h)]], [[*chain(*r)]]),
            "in another order: .* as if each side were one sentence",
        ),
        (bag, "the order counts: .* order of the words does not count"),
        (
            counted(lambda matched, _: sum(len(set(chain(*row))) for row in matched)),
            "one word for two: .* a word of the hypothesis counts more than once",
        ),
        (
            counted(lambda matched, _: sum(max(map(len, row), default=0) for row in matched)),
            "share one: .* only the best sentence",
        ),
        (
            counted(lambda matched, _: sum(len(each) for row in matched for each in row)),
            "share one: .* a place of the reference counts more than once",
        ),
        (lambda h, r: by_walking(r, h), "one sentence: .* precision and recall are exchanged"),
        (partial(by_counts, places=early), "not the best: .* precision .* mine 0.25, right 0.75$"),
        (
            counted(
                lambda matched, reference: len(
                    {r[j] for row, r in zip(matched, reference, strict=True) for j in chain(*row)}
                )
            ),
            "all in common: .* a word that occurs twice counts once",
        ),
        (
            lambda h, r: [by_walking(r, h)[i] for i in (1, 0, 2)],
            "two words for two: .* places of the hypothesis are united",
        ),
        (emptied, "one sentence: .* it changes `hypothesis` in place"),
        (divided, "nothing in common: .* division by zero; all three are 0"),
        (
            lambda h, r: (*by_walking(h, r)[:2], 0.5),
            r"one sentence: .* F .* mine 0.5, right 0.666667$",
        ),
        (lambda h, r: [float("nan")] * 3, "one sentence: .* precision .* mine nan, right 0.75"),
    ],
    "seeds_needed": [
        *((fault, f"; {re.escape(why)}$") for why, fault in SEED_FAULTS.items()),
        (Seeds(whole=round), "not rounded up"),
        (lambda *case: 7, "mine 7, right 1090$"),
    ],
}
