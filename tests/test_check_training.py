"""The check of the exercise on schedules accepts the right, and says what is wrong."""

import math

import pytest
import torch

from dynconv.teach import check


def restarts(done, lr, lr_end, warmup, period, grow):
    if done < warmup:
        return lr * done / warmup
    u = done - warmup
    while u >= period:
        u -= period
        period *= grow
    return lr_end + (lr - lr_end) * (1 + math.cos(math.pi * u / period)) / 2


def by_steps(done, lr, lr_end, warmup, period, grow):
    """All rates up to the one asked for."""
    rates = [lr * u / warmup for u in range(warmup)]
    while len(rates) <= done:
        for u in range(period):
            half = math.cos(math.pi * u / period / 2) ** 2
            rates.append(lr_end * (1 - half) + lr * half)
        period *= grow
    return rates[done]


def as_tensor(*arguments):
    return torch.tensor(restarts(*arguments), dtype=torch.float64)


def single(done, lr, lr_end, warmup, period, grow, clamp=False):
    if done < warmup:
        return lr * done / warmup
    p = (done - warmup) / period
    return lr_end + (lr - lr_end) * (1 + math.cos(math.pi * (min(p, 1) if clamp else p))) / 2


def late(done, lr, lr_end, warmup, period, grow):
    if done < warmup:
        return lr * done / warmup
    u = done - warmup
    while u > period:
        u, period = u - period, period * grow
    return lr_end + (lr - lr_end) * (1 + math.cos(math.pi * u / period)) / 2


def warm_again(done, lr, lr_end, warmup, period, grow):
    while done >= warmup + period:
        done, period = done - warmup - period, period * grow
    return restarts(done, lr, lr_end, warmup, period, grow)


def began_early(done, lr, lr_end, warmup, period, grow):
    return restarts(done, lr, lr_end, warmup if done < warmup else 0, period, grow)


@pytest.mark.parametrize("right", [restarts, by_steps, as_tensor])
def test_accepts(right, capsys):
    check.schedule(right)
    assert capsys.readouterr().out.startswith("right: ")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda *a: None, "a NoneType, not a number"),
        (single, "after 8 updates .*: no cycle follows the first"),
        (lambda *a: single(*a, clamp=True), "after 8 updates .*: no cycle follows the first"),
        (late, "after 8 updates .*, not 1: a cycle ends one update late"),
        (lambda *a: restarts(*a[:5], 1), "grow 2.*: every cycle is as long as the first"),
        (lambda u, lr, end, *a: restarts(u, lr, 0, *a), "the lowest rate is 0, not lr_end"),
        (lambda u, *a: restarts(u + 1, *a), "after 0 updates .* the update after"),
        (lambda u, lr, end, w, *a: restarts(u, lr, end, 0, *a), "there is no warm-up"),
        (warm_again, "every cycle has a warm-up, not only the first"),
        (began_early, "began before the end of the warm-up"),
        (lambda *a: 2 * restarts(*a), r"after 0 updates \(lr 1, lr_end 0.*\): 2, not 1$"),
    ],
    ids=[
        "nothing",
        "rises again",
        "stays low",
        "late",
        "equal cycles",
        "down to 0",
        "one ahead",
        "cold",
        "warm again",
        "began early",
        "twice",
    ],
)
def test_rejects(wrong, message):
    with pytest.raises(AssertionError, match=message):
        check.schedule(wrong)
