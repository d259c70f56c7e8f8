"""Right and wrong answers to the exercises beyond translation."""

from functools import cache, partial
from itertools import chain
from math import ceil
from statistics import NormalDist

import numpy as np
import torch

from dynconv.teach.check.beyond_translation import Seeds


def head_of(hidden, words, classes):
    return (hidden @ torch.cat([words[0], classes]).t()).log_softmax(-1)


def tails_of(hidden, words, projections):
    pairs = zip(projections, words[1:], strict=True)
    return [(hidden @ P @ E.t()).log_softmax(-1) for P, E in pairs]


def all_of_it(hidden, words, projections, classes, of_class=1):
    """Every tail of every row."""
    V = len(words[0])
    head = head_of(hidden, words, classes)
    tails = tails_of(hidden, words, projections)
    tails = [of_class * head[:, V + i, None] + tail for i, tail in enumerate(tails)]
    return torch.cat([head[:, :V], *tails], dim=-1).argmax(-1)


def band_by_band(hidden, words, projections, classes):
    """The solution."""
    head = head_of(hidden, words, classes)
    start = len(words[0])
    best, types = head[:, :start].max(-1)
    for i, (P, E) in enumerate(zip(projections, words[1:], strict=True)):
        row = len(words[0]) + i
        rows = (head[:, row] > best).nonzero().squeeze(1)
        tail = (hidden[rows] @ P @ E.t()).log_softmax(-1)
        value, place = (head[rows, row, None] + tail).max(-1)
        wins = value > best[rows]
        best[rows[wins]], types[rows[wins]] = value[wins], start + place[wins]
        start += len(E)
    return types


def where_a_class_leads(hidden, words, projections, classes):
    """As PyTorch's predict: all tails, of the rows whose likeliest row of the head is a class."""
    types = head_of(hidden, words, classes).argmax(-1)
    rows = types >= len(words[0])
    types[rows] = all_of_it(hidden[rows], words, projections, classes)
    return types


def in_float64(hidden, words, projections, classes):
    words, projections = [[x.double() for x in part] for part in (words, projections)]
    return band_by_band(hidden.double(), words, projections, classes.double())


def moved(far):
    """Types of the tails, `far` off."""

    def answer(hidden, words, projections, classes):
        types = all_of_it(hidden, words, projections, classes)
        return torch.where(types >= len(words[0]), types + far, types)

    return answer


def with_other_words(hidden, words, projections, classes):
    types = band_by_band(hidden, words, projections, classes)
    words[1].mul_(2)
    return types


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
    matches = []
    for word in h:
        start = matches[-1] + 1 if matches else 0
        if word in r[start:]:
            matches.append(r.index(word, start))
    return matches


def by_walking(hypothesis, reference, places=places):
    """Each copy of a word is crossed out when it is used; returns a list."""
    left, hits = [*chain(*hypothesis)], 0
    for r in reference:
        for j in sorted({j for h in hypothesis for j in places(h, r)}):
            if r[j] in left:
                left.remove(r[j])
                hits += 1
    return [*parts(hits, hypothesis, reference)]


def divided(h, r):
    P, R, _ = by_walking(h, r)
    return P, R, 2 * P * R / (P + R)


def by_hand(delta, sigma, power=0.8):
    z = NormalDist().inv_cdf
    return max(2, ceil(2 * ((z(0.975) + z(power)) * sigma / delta) ** 2))


RIGHT = {
    "adaptive_argmax": [band_by_band, where_a_class_leads, in_float64],
    "rouge_l": [
        by_walking,
        lambda h, r: np.array(by_walking(h, r)),
        partial(by_walking, places=partial(places, forward=True)),
    ],
    "seeds_needed": [
        by_hand,
        lambda *case: float(by_hand(*case)),
        lambda *case: np.int64(by_hand(*case)),
        lambda *case: torch.tensor(by_hand(*case)),
    ],
}
WRONG = {
    "adaptive_argmax": [
        (lambda *bands: all_of_it(*bands).int(), "torch.int32, not torch.int64"),
        (with_other_words, "it changes `words` in place"),
        (partial(all_of_it, of_class=-1), "times the softmax inside the band"),
        (moved(1), r"the right band, \d, and the wrong place in it"),
        (moved(1000), "types are 0 to 99"),
        (all_of_it, "multiplications, and .* are enough: .* the others need no tail"),
        (
            lambda *bands: all_of_it(*bands) * 0,
            r"mine 0, right \d+; type \d+ has p = 0.\d\d: the right one is in band 1",
        ),
    ],
    "rouge_l": [
        (lambda h, r: by_walking(h, r)[2], r"a float, not \(precision, recall, F\)"),
        (partial(by_walking, places=early), "not the best: .* precision .* mine 0.25, right 0.75$"),
        (divided, "nothing in common: .* division by zero; all three are 0"),
        (
            lambda h, r: (*by_walking(h, r)[:2], 0.5),
            r"one sentence: .* F .* mine 0.5, right 0.666667$",
        ),
        (lambda h, r: [float("nan")] * 3, "one sentence: .* precision .* mine nan, right 0.75"),
    ],
    "seeds_needed": [
        (Seeds(whole=round), "not rounded up"),
        (lambda *case: 7, "mine 7, right 1090$"),
    ],
}
