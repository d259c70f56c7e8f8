"""The check of the exercise on normalisers accepts the right, and says what is wrong."""

import pytest
import torch

from dynconv.teach import check


def projected(a):
    """By sorting: tau is the largest that the taps above it, less tau, sum to 1."""
    high = a.sort(dim=-1, descending=True).values
    count = torch.arange(1, a.shape[-1] + 1)
    taus = (high.cumsum(dim=-1) - 1) / count
    size = (high > taus).sum(dim=-1, keepdim=True)
    return (a - taus.gather(-1, size - 1)).clamp(min=0)


def over_the_last_but_one(a):
    return projected(a.transpose(-1, -2)).transpose(-1, -2) if a.ndim > 1 else projected(a)


def straight_through(a):
    return a + (projected(a) - a).detach()


def test_sparsemax_exercise_accepts_the_projection(capsys):
    check.sparsemax(projected)
    assert capsys.readouterr().out == "right: values and gradients on 9 cases\n"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda a: a.softmax(dim=-1), r"a \(4,\), .* a tap with weight is not its score"),
        (lambda a: a - (a.sum(-1, keepdim=True) - 1) / a.shape[-1], "a weight is negative"),
        (lambda a: a.relu(), "the weights of a kernel do not sum to 1: mine "),
        (lambda a: a / 0 - a / 0, r"a weight is not a number, first at \[0\]: mine nan"),
        (lambda a: None, "mine returns NoneType, not a tensor"),
        (lambda a: a.relu() / a.relu().sum(-1, keepdim=True), "a tap with weight is not its score"),
        (lambda a: (a == a.amax(-1, keepdim=True)) + 0 * a, "a tap without weight .* above tau"),
        (over_the_last_but_one, r"a \(3, 7\), .* do not sum to 1, first at \[0\]"),
        (lambda a: projected(a).sum(-1), r"mine has shape \(\), not \(4,\)"),
        (lambda a: projected(a.detach()), "no gradient flows back"),
        (straight_through, "the gradient is not g less its mean"),
    ],
    ids=[
        "softmax",
        "negative",
        "not normalised",
        "nan",
        "nothing",
        "scaled",
        "largest only",
        "axis",
        "shape",
        "detached",
        "straight through",
    ],
)
def test_sparsemax_exercise_rejects(wrong, message):
    with pytest.raises(AssertionError, match=message):
        check.sparsemax(wrong)
