"""The check of the exercise on cleaning accepts the right, and says what is wrong."""

import pytest

from dynconv.teach import check
from dynconv.text.sets.splits import fits


def by_package(pairs, longest, ratio):
    return [pair for pair in pairs if fits(pair, longest, ratio)]


def by_products(pairs, longest, ratio):
    """As a generator, without a division."""
    for pair in pairs:
        source, target = (side.split() for side in pair)
        n, m = len(source), len(target)
        short = all(len(word) <= 1000 for word in source + target)
        if short and 1 <= min(n, m) and max(n, m) <= longest and n <= ratio * m and m <= ratio * n:
            yield list(pair)


def written(count=lambda side: len(side.split()), *, two_sided=True, strict=False, words=True):
    """A cleaning with a choice of faults."""

    def clean(pairs, longest, ratio):
        kept = []
        for pair in pairs:
            n, m = map(count, pair)
            if not (1 <= n <= longest and 1 <= m <= longest):
                continue
            if words and max(len(word) for side in pair for word in side.split(" ")) > 1000:
                continue
            share = max(n, m) / min(n, m) if two_sided else n / m
            if share < ratio or (share == ratio and not strict):
                kept.append(pair)
        return kept

    return clean


def whole_ratio(pairs, longest, ratio):
    sides = [(p, *sorted(len(s.split()) for s in p)) for p in by_package(pairs, longest, 9)]
    return [pair for pair, low, high in sides if high // low <= ratio]


def long_lines(pairs, longest, ratio):
    return [p for p in by_package(pairs, longest, ratio) if max(map(len, p)) <= 1000]


def in_place(pairs, longest, ratio):
    for pair in set(pairs) - set(by_package(pairs, longest, ratio)):
        pairs.remove(pair)
    return pairs


def divides_first(pairs, longest, ratio):
    sides = [(pair, *(len(side.split()) for side in pair)) for pair in pairs]
    return [pair for pair, n, m in sides if 1 / ratio <= n / m <= ratio and 0 < n <= longest >= m]


def source_only(pairs, longest, ratio):
    return [p for p in by_package(pairs, 99, ratio) if len(p[0].split()) <= longest]


def either_side(pairs, longest, ratio):
    return [p for p in by_package(pairs, 99, ratio) if min(len(s.split()) for s in p) <= longest]


def distinct(pairs, longest, ratio):
    return list(dict.fromkeys(by_package(pairs, longest, ratio)))


def turned(pairs, longest, ratio):
    return by_package(pairs, longest, ratio)[::-1]


def changed(pairs, longest, ratio):
    return [tuple(s.upper() for s in pair) for pair in by_package(pairs, longest, ratio)]


@pytest.mark.parametrize("right", [by_package, by_products, written()])
def test_accepts(right, capsys):
    check.cleaned(right)
    assert capsys.readouterr().out.startswith("right: ")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda *_: None, "it returns None"),
        (lambda pairs, *_: pairs, "one side blank: it keeps the pair, which goes"),
        (lambda pairs, *_: [], "same length: it drops the pair, which stays"),
        (lambda *_: [True], "not pairs"),
        (lambda pairs, a, b: by_package(pairs, 6, 1.5), "with other limits: it drops the pair"),
        (divides_first, "the other side blank: it divides by the length of an empty side"),
        (written(len), "same length: it drops"),
        (written(lambda side: side.count(" ") + 1), "both sides blank: it keeps the pair"),
        (written(lambda side: len(side.split(" "))), "both sides blank: it keeps the pair"),
        (written(two_sided=False), "the target twice as long: it keeps the pair"),
        (written(strict=True), "exactly 1.5, the source longer: it drops"),
        (whole_ratio, "three words and five: it keeps"),
        (long_lines, "two words of 600 characters: it drops"),
        (in_place, "one side blank: it changes the list that it is given"),
        (written(words=False), "a word of 1,001 characters: it keeps"),
        (source_only, "one word too many on the target side: it keeps"),
        (either_side, "one word too many on the source side: it keeps"),
        (distinct, "is a repeated pair lost"),
        (turned, "all pairs together: in another order"),
        (changed, "not the pair or nothing"),
    ],
    ids=[
        "nothing",
        "keeps all",
        "drops all",
        "no pairs",
        "fixed limits",
        "divides by zero",
        "characters",
        "spaces counted",
        "split at each space",
        "one-sided ratio",
        "strict ratio",
        "ratio cut to an integer",
        "long lines",
        "in place",
        "long words",
        "source only",
        "either side",
        "distinct",
        "order",
        "changed",
    ],
)
def test_rejects(wrong, message):
    with pytest.raises(AssertionError, match=message):
        check.cleaned(wrong)
