"""The check of the exercise on summaries."""

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import chain

import numpy as np

Text = list[list[str]]
"""sentences of words"""

CASES = {
    "one sentence": (["maps of a cave"], ["maps of any cave now"]),
    "the order counts": (["c b a"], ["a b c"]),
    "sentences in another order": (["d e f", "a b c"], ["a b c", "d e f"]),
    "two sentences share one": (["a d x", "b d y z"], ["a b c d"]),
    "the first match is not the best": (["d a b c"], ["a b c d"]),
    "one word for two": (["a x"], ["a b", "a c"]),
    "all in common": (["a b", "a c"], ["a b", "a c"]),
    "two words for two": (["a a"], ["a b", "a c"]),
    "two references share one": (["a b c d e"], ["a b w", "d e v"]),
    "nothing in common": (["a b"], ["c"]),
    "no words": ([], ["a b"]),
}
"""name: sentences of the hypothesis, and of the reference; no longest subsequence is a choice that
would change the result"""


def rouge_l(mine: Callable[[Text, Text], Sequence[float]]) -> None:
    """mine(hypothesis, reference) is precision, recall and F of ROUGE-L over sentences."""
    for name, pair in CASES.items():
        hypothesis, reference = ([line.split() for line in side] for side in pair)
        case = f"{name}: hypothesis {pair[0]}, reference {pair[1]}: "
        given = [[[*words] for words in side] for side in (hypothesis, reference)]
        try:
            got = mine(*given)
        except ZeroDivisionError:
            raise AssertionError(case + "division by zero; all three are 0 there") from None
        if given != [hypothesis, reference]:
            raise AssertionError(f"{case}it changes them to {given[0]} and {given[1]}")
        if not isinstance(got, (tuple, list, np.ndarray)) or len(got) != 3:
            raise AssertionError(f"it returns {got!r}, not precision, recall and F")
        theirs = _parts(_hits(hypothesis, reference), hypothesis, reference)
        for what, a, b in zip(("precision", "recall", "F"), got, theirs, strict=True):
            if not abs(a - b) < 1e-9:
                why = _why(got, theirs, hypothesis, reference)
                raise AssertionError(f"{case}{what} is {b:.3f}, mine {a:.3f}{why}")
    print(f"right: {len(CASES)} pairs of summaries")


def _why(got: Sequence[float], theirs: Sequence[float], hypothesis: Text, reference: Text) -> str:
    """A known fault that gives what was got, if there is one."""

    def whole(text: Text) -> Text:
        return [[*chain(*text)]]

    bags = [Counter(chain(*side)) for side in (hypothesis, reference)]
    each = [[len(_places(h, r)) for h in hypothesis] for r in reference]
    faults = {
        "precision and recall are exchanged": None,
        "a word of the hypothesis counts more than once": _hits(hypothesis, reference, clip=False),
        "as if each side were one sentence": _hits(whole(hypothesis), whole(reference)),
        "the order of the words does not count": (bags[0] & bags[1]).total(),
        "only the best sentence counts, not the union": sum(max(row, default=0) for row in each),
        "a place of the reference counts more than once": sum(map(sum, each)),
        "places of the hypothesis are united": _hits(reference, hypothesis),
        "a word that occurs twice counts once": len(_found(hypothesis, reference)),
    }
    for fault, hits in faults.items():
        known = _parts(hits, hypothesis, reference) if hits is not None else theirs[1::-1]
        if all(abs(a - b) < 1e-9 for a, b in zip(got, known, strict=False)):
            return f"; {fault}"
    return ""


def _parts(hits: int, hypothesis: Text, reference: Text) -> tuple[float, float, float]:
    """Precision, recall and F."""
    m, n = (sum(map(len, side)) for side in (hypothesis, reference))
    return hits / max(m, 1), hits / max(n, 1), 2 * hits / max(m + n, 1)


def _hits(hypothesis: Text, reference: Text, clip: bool = True) -> int:
    """The words of the reference that are in a longest common subsequence with some sentence."""
    found = _found(hypothesis, reference)
    return (found & Counter(chain(*hypothesis)) if clip else found).total()


def _found(hypothesis: Text, reference: Text) -> Counter[str]:
    """The words at the united places, not clipped."""
    found = Counter()
    for sentence in reference:
        places = set().union(*(_places(words, sentence) for words in hypothesis))
        found.update(sentence[i] for i in places)
    return found


def _places(hypothesis: list[str], reference: list[str]) -> set[int]:
    """The places in the reference of one longest common subsequence."""
    m, n = len(hypothesis), len(reference)
    length = [[0] * (n + 1) for _ in range(m + 1)]
    for i, a in enumerate(hypothesis, 1):
        for j, b in enumerate(reference, 1):
            away = max(length[i - 1][j], length[i][j - 1])
            length[i][j] = length[i - 1][j - 1] + 1 if a == b else away
    places = set()
    while m and n:
        if hypothesis[m - 1] == reference[n - 1]:
            m, n = m - 1, n - 1
            places.add(n)
        elif length[m - 1][n] >= length[m][n - 1]:
            m -= 1
        else:
            n -= 1
    return places
