"""The check of the exercise on chrF."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple


class _Way(NamedTuple):
    """One way to compute chrF; the defaults are the right one."""

    first: int = 1
    orders: int = 6
    beta: float = 2
    spaces: bool = False
    lower: bool = False
    clip: bool = True
    mean_of_sentences: bool = False
    f_of_each_order: bool = False
    counts_missing_orders: bool = False
    counts_half_missing_orders: bool = False


FAULTS = {
    "the mean of the sentences' scores; add up their counts first": {"mean_of_sentences": True},
    "beta = 1; recall weighs twice as much, beta = 2": {"beta": 1},
    "beta = 1/2; recall is the one that weighs more, not precision": {"beta": 0.5},
    "the 2 of the formula is not squared": {"beta": 2**0.5},
    "spaces are counted as characters; drop them": {"spaces": True},
    "matches are not clipped by the count in the reference": {"clip": False},
    "an F-score of each order and their mean; mean precision and mean recall come first": {
        "f_of_each_order": True
    },
    "n-grams of 1 to 4 characters; chrF has 1 to 6": {"orders": 4},
    "n-grams of 1 to 5 characters; chrF has 1 to 6": {"orders": 5},
    "n-grams of 0 to 5 characters; chrF has 1 to 6": {"first": 0, "orders": 5},
    "upper and lower case are the same; chrF tells them apart": {"lower": True},
    "an order of which neither side has n-grams counts as 0; leave it out of the means": {
        "counts_missing_orders": True
    },
    "an order of which one side has no n-grams counts on the other; leave it out of both means": {
        "counts_half_missing_orders": True
    },
}

CASES = {
    "a word": (["kernel"], ["kernels"]),
    "a word three times": (["padding padding padding"], ["padding is no word"]),
    "a short output": (["We count by hand."], ["We count all of the weights by hand once."]),
    "a long output": (["We count all of the weights by hand once."], ["We count by hand."]),
    "two letters": (["ab"], ["ac"]),
    "two letters of six": (["ab"], ["abcdef"]),
    "upper case": (["THE Window slides"], ["The window slides on"]),
    "three sentences": (
        ["The kernel slides over it.", "Padding no word is.", "A wider window sees the rest"],
        ["The kernel slides along the sentence.", "Padding is no word.", "Wider windows see more."],
    ),
    "nothing in common": (["window"], ["kuchuk"]),
}


def chrf(mine: Callable[[Sequence[str], Sequence[str]], float]) -> None:
    """mine(hypotheses, references) is corpus chrF2, 0 to 100."""
    for name, (hypotheses, references) in CASES.items():
        case = f"{name}, {hypotheses[0]!r} for {references[0]!r}: "
        try:
            got = float(mine(list(hypotheses), list(references)))
        except ZeroDivisionError:
            raise AssertionError(case + "division by zero; an order may have no n-grams") from None
        except TypeError as error:
            raise AssertionError(case + f"it does not return a number ({error})") from None
        right = _chrf(hypotheses, references, _Way())
        if _close(got, right):
            continue
        why = next(
            (why for why, way in FAULTS.items() if _close(got, _chrf(*CASES[name], _Way(**way)))),
            "it goes from 0 to 1, and should to 100" if _close(100 * got, right) else None,
        )
        raise AssertionError(case + f"mine {got:.6g}, theirs {right:.6g}{why and f': {why}' or ''}")
    print(f"right: {len(CASES)} cases, one of several sentences")


def _close(a: float, b: float) -> bool:
    return abs(a - b) <= 1e-5 * max(1, abs(b))  # float32 will do


def _chrf(hypotheses: Sequence[str], references: Sequence[str], way: _Way) -> float:
    pairs = list(zip(hypotheses, references, strict=True))
    if way.mean_of_sentences:
        one_by_one = way._replace(mean_of_sentences=False)
        return sum(_chrf([h], [r], one_by_one) for h, r in pairs) / len(pairs)
    P, R = [], []
    for n in range(way.first, way.orders + 1):
        found = mine = theirs = 0
        for pair in pairs:
            h, r = (_grams(line, n, way) for line in pair)
            found += (h & r).total() if way.clip else sum(h[gram] for gram in h if gram in r)
            mine, theirs = mine + h.total(), theirs + r.total()
        if mine and theirs:
            P.append(found / mine)
            R.append(found / theirs)
        elif way.counts_missing_orders:
            P.append(0)
            R.append(0)
        elif way.counts_half_missing_orders:
            P += [0] if mine else []
            R += [0] if theirs else []
    if way.f_of_each_order:
        return sum(_f_score(p, r, way.beta) for p, r in zip(P, R, strict=True)) / len(P)
    return _f_score(sum(P) / len(P), sum(R) / len(R), way.beta)


def _grams(line: str, n: int, way: _Way) -> Counter:
    line = line.lower() if way.lower else line
    text = line if way.spaces else "".join(line.split())
    return Counter(text[i : i + n] for i in range(len(text) - n + 1))


def _f_score(p: float, r: float, beta: float) -> float:
    return 100 * (1 + beta**2) * p * r / (beta**2 * p + r) if p + r else 0.0
