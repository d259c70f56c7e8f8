"""The check of the exercise on chrF accepts the right, and says what is wrong."""

from collections import Counter
from functools import partial

import numpy as np
import pytest

from dynconv.score import chrf
from dynconv.teach import check
from dynconv.teach.check.bleu import FAULTS, _chrf, _Way


def by_counters(hypotheses, references, weight=4):
    P, R = [], []
    for n in range(1, 7):
        counts = [0, 0, 0]
        for pair in zip(hypotheses, references, strict=True):
            joined = [line.replace(" ", "") for line in pair]
            h, r = (Counter(x[i : i + n] for i in range(len(x) - n + 1)) for x in joined)
            counts = [a + b.total() for a, b in zip(counts, (h & r, h, r), strict=True)]
        if counts[1] and counts[2]:
            P.append(counts[0] / counts[1])
            R.append(counts[0] / counts[2])
    p, r = sum(P) / len(P), sum(R) / len(R)
    return 100 * (1 + weight) * p * r / (weight * p + r) if p + r else 0


def by_ticking_off(hypotheses, references):
    sums = [[0, 0, 0] for _ in range(6)]
    for h, r in zip(hypotheses, references, strict=True):
        h, r = "".join(h.split()), "".join(r.split())
        for n in range(1, 7):
            left = [r[i : i + n] for i in range(len(r) - n + 1)]
            sums[n - 1][2] += len(left)
            for i in range(len(h) - n + 1):
                sums[n - 1][1] += 1
                if h[i : i + n] in left:
                    left.remove(h[i : i + n])
                    sums[n - 1][0] += 1
    orders = [order for order in sums if order[1] and order[2]]
    p = sum(found / mine for found, mine, _ in orders) / len(orders)
    r = sum(found / theirs for found, _, theirs in orders) / len(orders)
    return 0 if p == 0 else 100 / (1 / p + 4 / r) * 5


def by_the_package(hypotheses, references):
    return chrf(hypotheses, references).value


def in_float32(hypotheses, references):
    return np.float32(by_counters(hypotheses, references))


@pytest.mark.parametrize("right", [by_counters, by_ticking_off, by_the_package, in_float32])
def test_accepts(right, capsys):
    check.chrf(right)
    assert capsys.readouterr().out.startswith("right: ")


@pytest.mark.parametrize("message", FAULTS)
def test_names_the_fault(message):
    with pytest.raises(AssertionError) as error:
        check.chrf(partial(_chrf, way=_Way(**FAULTS[message])))
    assert str(error.value).endswith(f": {message}")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda h, r: by_counters(h, r) / 100, "it goes from 0 to 1, and should to 100"),
        (lambda h, r: by_counters(h, r, weight=2), "the 2 of the formula is not squared"),
        (lambda h, r: None, "it does not return a number"),
        (lambda h, r: by_counters(r, h), "mine .*, theirs "),
        (lambda h, r: 1 / 0, "division by zero"),
    ],
    ids=["share", "not squared", "nothing", "sides exchanged", "zero"],
)
def test_rejects(wrong, message):
    with pytest.raises(AssertionError, match=message):
        check.chrf(wrong)
