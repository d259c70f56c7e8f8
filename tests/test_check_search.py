"""The check of the exercise on search accepts the right, and says what is wrong."""

import pytest
import torch

from dynconv.decode.constraints import no_repeat
from dynconv.teach import check


def in_loops(logp, prefixes, n=3):
    """No n-gram twice."""
    logp = logp.clone()
    for b in range(len(prefixes)):
        for h, ids in enumerate(prefixes[b].tolist()):
            for i in range(len(ids) - n + 1):
                if ids[i : i + n - 1] == ids[len(ids) - n + 1 :]:
                    logp[b, h, ids[i + n - 1]] = -torch.inf
    return logp


def by_sets(logp, prefixes):
    """In place, each token tried."""
    for b in range(len(prefixes)):
        for h, ids in enumerate(prefixes[b].tolist()):
            had = {*zip(ids, ids[1:], ids[2:], strict=False)}
            for token in range(logp.shape[2]):
                if (*ids[-2:], token) in had:
                    logp[b, h, token] = -torch.inf
    return logp


@pytest.mark.parametrize("right", [in_loops, by_sets, no_repeat(3)])
def test_accepts(right, capsys):
    check.block_trigrams(right)
    assert capsys.readouterr().out.startswith("right: ")


def first_only(logp, prefixes):
    """Stops at the first trigram that matches."""
    for b in range(len(prefixes)):
        for h, ids in enumerate(prefixes[b].tolist()):
            for i in range(len(ids) - 2):
                if ids[i : i + 2] == ids[-2:]:
                    logp[b, h, ids[i + 2]] = -torch.inf
                    break
    return logp


def any_hypothesis(logp, prefixes):
    """Forbids to each what any other has had."""
    for b in range(len(prefixes)):
        everything = prefixes[b].tolist()
        for h, ids in enumerate(everything):
            for other in everything:
                for i in range(len(other) - 2):
                    if other[i : i + 2] == ids[-2:]:
                        logp[b, h, other[i + 2]] = -torch.inf
    return logp


def first_hypothesis(logp, prefixes):
    """One row's answer for all rows."""
    logp[:] = torch.where(in_loops(0 * logp.exp(), prefixes)[:1, :1].isneginf(), -torch.inf, logp)
    return logp


def without_short(logp, prefixes):
    newest = prefixes[0, 0][-2].item()
    return in_loops(logp, prefixes) if newest >= 0 else logp


def the_last_too(logp, prefixes):
    """Counts the trigram that has not been made yet."""
    for b in range(len(prefixes)):
        for h, ids in enumerate(prefixes[b].tolist()):
            for i in range(len(ids) - 1):
                if ids[i : i + 2] == ids[-2:]:
                    logp[b, h, ids[min(i + 2, len(ids) - 1)]] = -torch.inf
    return logp


def forbids_nothing_more(logp, prefixes):
    """Undoes what was forbidden before."""
    return in_loops(logp, prefixes).where(logp > -torch.inf, torch.zeros(()))


def a_large_number(logp, prefixes):
    """Blocks with -1e9."""
    return logp.where(in_loops(logp, prefixes) == logp, torch.tensor(-1e9))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda logp, prefixes: None, "a NoneType, not a tensor"),
        (lambda logp, prefixes: logp[0], r"an empty prefix: shape \(1, 8\), not \(2, 1, 8\)"),
        (lambda logp, prefixes: logp, r"\[5, 6, 7, 5, 6\]: 7 makes 5 6 7 again, and is not"),
        (lambda *given: in_loops(*given, n=2), r"\[5, 5\]: 5 is blocked, and 5 5 5 is no rep"),
        (lambda *given: in_loops(*given, n=4), r"\[5, 6, 7, 5, 6\]: 7 makes 5 6 7 again"),
        (first_only, r"\[5, 6, 7, 5, 6, 3, 5, 6\]: 3 makes 5 6 3 again, and is not"),
        (any_hypothesis, r"\[5, 6, 7, 5, 6\]: 3 is blocked, and 5 6 3 is no repetition"),
        (first_hypothesis, r"\[5, 6, 3, 5, 6\]: 3 makes 5 6 3 again, and is not blocked"),
        (without_short, "an empty prefix: IndexError"),
        (the_last_too, r"\[5, 5\]: 5 is blocked, and 5 5 5 is no repetition"),
        (lambda *given: in_loops(*given).exp(), r"prefix \[\]: log p of 0 is .*, and was"),
        (lambda *given: in_loops(*given).clamp(min=-1e9), "is -1e"),
        (a_large_number, "7 makes 5 6 7 again, and is not blocked: log p -1e\\+09, not -inf"),
        (forbids_nothing_more, "log p of 2 is 0, and was -inf"),
    ],
    ids=[
        "nothing",
        "shape",
        "blocks nothing",
        "bigrams",
        "4-grams",
        "first only",
        "any hypothesis",
        "one for all",
        "short prefixes",
        "not made yet",
        "probabilities",
        "clamped",
        "a large number",
        "undone",
    ],
)
def test_rejects(wrong, message):
    with pytest.raises(AssertionError, match=message):
        check.block_trigrams(wrong)
