"""The check of an exercise accepts the right, and says what is wrong."""

import itertools
from functools import partial

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from dynconv import ops
from dynconv.layers.attention import attend, split_heads
from dynconv.teach import check
from dynconv.text import buckets

EXERCISES = {
    "depthwise": ops.depthwise_conv,
    "light": ops.light_conv,
    "dynamic": ops.dynamic_conv,
}


@pytest.mark.parametrize("name", EXERCISES)
def test_exercise_accepts_the_right_and_rejects_the_shifted(name):
    verify, op = getattr(check, name), EXERCISES[name]
    verify(op)
    with pytest.raises(AssertionError, match=r"T = 5, pad_left = 2: values differ first at"):
        verify(lambda x, weight, pad_left: op(x, weight, pad_left=pad_left - (x.shape[1] > 1)))


def test_dilated_exercise_accepts_the_right_and_rejects_the_undilated():
    def dilated(x, weight, pad_left, dilation):
        wide = torch.zeros(weight.shape[0], (weight.shape[1] - 1) * dilation + 1).to(weight)
        wide[:, ::dilation] = weight
        return ops.depthwise_conv(x, wide, pad_left=pad_left)

    check.dilated(dilated)
    with pytest.raises(AssertionError, match="dilation = 3"):
        check.dilated(
            partial(lambda x, weight, dilation, pad_left: dilated(x, weight, pad_left, 1))
        )


def test_gradient_exercise_accepts_the_sum_and_rejects_the_mean_and_the_interleaved():
    def by_channel(x, g, pad_left, K):
        padded = F.pad(x, (0, 0, pad_left, K - 1 - pad_left))
        return torch.einsum("btc,btck->ck", g, padded.unfold(1, K, 1))  # (C, K)

    def summed(x, g, pad_left, H, K):
        return by_channel(x, g, pad_left, K).unflatten(0, (H, -1)).sum(1)

    def averaged(x, g, pad_left, H, K):
        return by_channel(x, g, pad_left, K).unflatten(0, (H, -1)).mean(1)

    def interleaved(x, g, pad_left, H, K):
        return by_channel(x, g, pad_left, K).unflatten(0, (-1, H)).sum(0)

    check.light_gradient(summed)
    for wrong in (averaged, interleaved):
        with pytest.raises(AssertionError, match=r"T = 1, pad_left = 2.* \[0, 2\]"):
            check.light_gradient(wrong)


def test_an_exercise_accepts_a_loop_that_no_tap_enters():
    """At T = 1 and dilation 3 the output is zeros that know nothing of the input."""

    def loop(x, weight, pad_left, dilation):
        out = torch.zeros_like(x)
        for t in range(x.shape[1]):
            for j in range(weight.shape[1]):
                s = t + j * dilation - pad_left
                if 0 <= s < x.shape[1]:
                    out[:, t] = out[:, t] + weight[:, j] * x[:, s]
        return out

    check.dilated(loop)


def test_respell_accepts_the_right_and_rejects_what_is_half_done(capsys):
    def respelled(ids, allowed, table, first, deep=True):
        out = []
        for i in ids:
            if i < first or i in allowed:
                out.append(i)
            else:
                parts = list(table[i - first])
                out += respelled(parts, allowed, table, first) if deep else parts
        return out

    check.respell(respelled)
    assert capsys.readouterr().out == "right: 6 sets of allowed types\n"
    with pytest.raises(AssertionError, match=r"allowed \[4, 6\].* differ first at \[1\]: mine \["):
        check.respell(partial(respelled, deep=False))
    with pytest.raises(AssertionError, match=r"differ first at \[5\]"):
        check.respell(lambda *case: [*respelled(*case), 0])
    with pytest.raises(AssertionError, match="a NoneType, not a list"):
        check.respell(lambda *case: None)

    def endless(ids, allowed, table, first):
        """Looks for the parts of a basic type, too."""
        apart = ([i] if i in allowed else endless(table[i - 4], allowed, table, 4) for i in ids)
        return [i for part in apart for i in part]

    with pytest.raises(AssertionError, match="it does not end; ids below 4 stay"):
        check.respell(endless)


def masked_window(q, k, v, H, K):
    """Right, but by a T x T matrix."""
    at = torch.arange(q.shape[1])
    forbidden = (at - at[:, None]).abs() > K // 2
    return attend(*(split_heads(x, H) for x in (q, k, v)), forbidden, torch.nn.Identity())


def sliced_window(q, k, v, H, K):
    rows = []
    for t in range(q.shape[1]):
        seen = slice(max(0, t - K // 2), t + K // 2 + 1)
        parts = (split_heads(x, H) for x in (q[:, t : t + 1], k[:, seen], v[:, seen]))
        rows.append(attend(*parts, None, torch.nn.Identity()))
    return torch.cat(rows, dim=1)


def test_window_exercise_accepts_windows():
    check.window_attention(sliced_window)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (masked_window, "T = 500: keeps .* bytes"),
        (lambda q, k, v, H, K: sliced_window(q, k, v, H, K + 2), "T = 12, .* values differ first"),
        (
            lambda q, k, v, H, K: sliced_window(*(F.pad(x, (0, 0, K, K)) for x in (q, k, v)), H, K)[
                :, K:-K
            ],
            r"values differ first at \[0, 0, 0\]",
        ),
    ],
    ids=["T x T", "too wide", "zeros beyond the ends"],
)
def test_window_exercise_rejects(wrong, message):
    with pytest.raises(AssertionError, match=message):
        check.window_attention(wrong)


def endless(lengths, budget, seed, place):
    """The exercise of lesson 02, solved with the package's batches."""
    epoch, done = place
    while True:
        batches = buckets(lengths, budget, (seed, epoch))
        for n in range(done, len(batches)):
            yield batches[n], (epoch, n + 1)
        epoch, done = epoch + 1, 0


def with_one_generator(lengths, budget, seed, place):
    """What it draws in an epoch depends on the epochs before."""
    order, (epoch, done) = np.random.default_rng(seed), place
    while True:
        batches = buckets(lengths, budget)
        order.shuffle(batches)
        for n in range(done, len(batches)):
            yield batches[n], (epoch, n + 1)
        epoch, done = epoch + 1, 0


def counted_anew(lengths, budget, seed, place):
    """Goes on where it stopped, but counts its batches from there."""
    epoch, done = place
    while True:
        rest = buckets(lengths, budget, (seed, epoch))[done:]
        for n, batch in enumerate(rest):
            yield batch, (epoch, n + 1)
        epoch, done = epoch + 1, 0


def same_epoch(lengths, budget, seed, place):
    """Every epoch in the order of the first."""
    batches = buckets(lengths, budget, seed)
    for n in itertools.count(place[1]):
        yield batches[n % len(batches)], (0, n + 1)


def test_resumable_exercise_accepts_the_right(capsys):
    check.resumable(endless)
    assert "right: " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (with_one_generator, r"from \(1, 1\) on, batch 0 is"),
        (lambda *given: endless(*given[:3], (given[3][0], 0)), r"from \(0, 1\) on, batch 0 is"),
        (lambda lengths, budget, *rest: endless(lengths, 120, *rest), "over the budget"),
        (lambda *given: itertools.islice(endless(*given), 20), "ends after 20 batches"),
        (lambda *given: (([b[0]] * len(b), p) for b, p in endless(*given)), "again in epoch 0"),
        (same_epoch, "epoch 1 repeats"),
        (counted_anew, r"from \(0, 1\) on, the place after batch 0 is \(0, 1\), and was \(0, 2\)"),
        (lambda *given: endless(*given[:2], 1, given[3]), "seed 2 gives the batches of seed 1"),
        (lambda *given: (([], p) for _, p in endless(*given)), "batch 0 is empty"),
    ],
    ids=[
        "one generator",
        "from its start",
        "budget",
        "finite",
        "twice",
        "one order",
        "second stop",
        "one seed",
        "empty",
    ],
)
def test_resumable_exercise_rejects(wrong, message):
    with pytest.raises(AssertionError, match=message):
        check.resumable(wrong)
