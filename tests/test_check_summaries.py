"""The check of the exercise on summaries accepts the right, and says what is wrong."""

from collections import Counter
from functools import cache
from itertools import chain

import numpy as np
import pytest

from dynconv.teach import check
from dynconv.teach.check.summaries import CASES


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


def by_counts(hypothesis, reference, forward=False):
    """Matched words of all sentences in one bag, clipped at the end."""
    found = Counter()
    for r in reference:
        union = {j for h in hypothesis for j in places(h, r, forward)}
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


def as_array(h, r):
    return np.array(by_walking(h, r))


def counted(count):
    return lambda h, r: parts(count(h, r), h, r)


def in_one(h, r):
    return by_walking([[*chain(*h)]], [[*chain(*r)]])


def bag(h, r):
    return (Counter(chain(*h)) & Counter(chain(*r))).total()


def unclipped(hypothesis, reference):
    return sum(len({j for h in hypothesis for j in places(h, r)}) for r in reference)


def best_only(hypothesis, reference):
    return sum(max((len(places(h, r)) for h in hypothesis), default=0) for r in reference)


def all_added(hypothesis, reference):
    return sum(len(places(h, r)) for h in hypothesis for r in reference)


def early(hypothesis, reference):
    """Each word at its first place behind the last one: not the longest."""
    found = Counter()
    for r in reference:
        union = set()
        for h in hypothesis:
            j = 0
            for word in h:
                if word in r[j:]:
                    j = r.index(word, j) + 1
                    union.add(j - 1)
        found.update(r[j] for j in union)
    return (found & Counter(chain(*hypothesis))).total()


def distinct(hypothesis, reference):
    united = (r[j] for r in reference for h in hypothesis for j in places(h, r))
    return len(set(united))


def turned_round(hypothesis, reference):
    R, P, F = by_walking(reference, hypothesis)
    return P, R, F


def emptied(hypothesis, reference):
    found = by_walking(hypothesis, reference)
    hypothesis[0].clear() if hypothesis else None
    return found


def divided(h, r):
    P, R, _ = by_walking(h, r)
    return P, R, 2 * P * R / (P + R)


@pytest.mark.parametrize(
    "right", [by_counts, by_walking, as_array, lambda h, r: by_counts(h, r, forward=True)]
)
def test_accepts(right, capsys):
    check.rouge_l(right)
    assert capsys.readouterr().out == "right: 11 pairs of summaries\n"


@pytest.mark.parametrize("case", CASES)
def test_agrees_with_the_library(case):
    scorer = pytest.importorskip("rouge_score.rouge_scorer").RougeScorer(["rougeLsum"])
    texts = ["\n".join(side) for side in CASES[case]]
    hypothesis, reference = ([line.split() for line in side] for side in CASES[case])
    theirs = scorer.score(texts[1], texts[0])["rougeLsum"]
    assert by_counts(hypothesis, reference) == pytest.approx([*theirs])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda h, r: None, "returns None, not precision, recall and F"),
        (lambda h, r: by_walking(h, r)[2], "not precision, recall and F"),
        (in_one, "in another order: .* as if each side were one sentence"),
        (counted(bag), "the order counts: .* order of the words does not count"),
        (counted(unclipped), "one word for two: .* a word of the hypothesis counts more than once"),
        (counted(best_only), "share one: .* only the best sentence"),
        (counted(all_added), "share one: .* a place of the reference counts more than once"),
        (lambda h, r: by_walking(r, h), "one sentence: .* precision and recall are exchanged"),
        (counted(early), "first match is not the best: .* precision is 0.750, mine 0.250"),
        (counted(distinct), "all in common: .* a word that occurs twice counts once"),
        (turned_round, "two words for two: .* places of the hypothesis are united"),
        (emptied, r"one sentence: .* it changes them to \[\[\]\] and \[\['maps'"),
        (divided, "nothing in common: .* division by zero; all three are 0"),
        (lambda h, r: (*by_walking(h, r)[:2], 0.5), r"one sentence: .* F is 0.667, mine 0.500$"),
        (lambda h, r: [float("nan")] * 3, "one sentence: .* precision is 0.750, mine nan"),
    ],
    ids=[
        "nothing",
        "F alone",
        "one text",
        "bag",
        "not clipped",
        "best only",
        "all added",
        "exchanged",
        "early",
        "distinct",
        "turned round",
        "emptied",
        "zero",
        "F",
        "nan",
    ],
)
def test_rejects(wrong, message):
    with pytest.raises(AssertionError, match=message):
        check.rouge_l(wrong)
