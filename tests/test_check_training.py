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


def place(done, warmup, period, grow):
    """How many updates of its cycle are done, and how many it has."""
    u = done - warmup
    while u >= period:
        u, period = u - period, period * grow
    return u, period


def until_last(done, lr, lr_end, warmup, period, grow):
    if done < warmup:
        return lr * done / warmup
    u, period = place(done, warmup, period, grow)
    return lr_end + (lr - lr_end) * (1 + math.cos(math.pi * u / (period - 1))) / 2


def no_half(done, lr, lr_end, warmup, period, grow):
    if done < warmup:
        return lr * done / warmup
    u, period = place(done, warmup, period, grow)
    return lr_end + (lr - lr_end) * (1 + math.cos(math.pi * u / period))


def warm_ahead(done, lr, lr_end, warmup, *cycles):
    ahead = lr * (done + 1) / warmup if done < warmup else None
    return ahead or restarts(done, lr, lr_end, warmup, *cycles)


def warm_from_end(done, lr, lr_end, warmup, *cycles):
    if done < warmup:
        return lr_end + (lr - lr_end) * done / warmup
    return restarts(done, lr, lr_end, warmup, *cycles)


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
        (single, "at done = 8 .*: no cycle follows the first"),
        (lambda *a: single(*a, clamp=True), "at done = 8 .*: no cycle follows the first"),
        (late, "at done = 8 .*, not 1: a cycle ends one update late"),
        (lambda *a: restarts(*a[:5], 1), "grow 2.*: every cycle is as long as the first"),
        (lambda u, lr, end, *a: restarts(u, lr, 0, *a), "the lowest rate is 0, not lr_end"),
        (until_last, "lr_end belongs to the update after a cycle's last"),
        (no_half, "2, not 1: 1 \\+ cos goes up to 2"),
        (warm_ahead, "at done = 0 .*: the warm-up begins at 0, not at lr / warmup"),
        (warm_from_end, "at done = 0 .*: the warm-up begins at 0, not at lr_end"),
        (lambda u, *a: restarts(u + 1, *a), "at done = 0 .* the update after"),
        (lambda u, lr, end, w, *a: restarts(u, lr, end, 0, *a), "there is no warm-up"),
        (warm_again, "every cycle has a warm-up, not only the first"),
        (began_early, "began before the end of the warm-up"),
        (lambda *a: 2 * restarts(*a), r"at done = 0 \(lr 1, lr_end 0.*\): 2, not 1$"),
    ],
    ids=[
        "nothing",
        "rises again",
        "stays low",
        "late",
        "equal cycles",
        "down to 0",
        "to the last",
        "no half",
        "warm-up one ahead",
        "warm-up from lr_end",
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
