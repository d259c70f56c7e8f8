"""Learning rates, and when training ends early."""

import math
from dataclasses import replace

import numpy as np
import pytest

from dynconv.config import TrainConfig
from dynconv.config.schedules import SCHEDULES, Schedule, learning_rate
from dynconv.tasks import Validation
from dynconv.train.session import ends_early


@pytest.mark.parametrize("name", ["inverse_sqrt_iwslt", "cosine_wmt16ende", "cosine_wmt14enfr"])
def test_schedules_equal_the_released_code(golden, name):
    _, meta, case = golden.case(f"lr_{name}")
    config = TrainConfig(
        updates=meta["warmup"] + meta.get("period", 10**6),
        lr=meta["lr"],
        warmup=meta["warmup"],
        schedule=meta["kind"],
        lr_end=meta.get("min_lr", 0.0),
    )
    steps = [s for s in case["steps"] if s < config.updates]  # there it begins again
    assert len(steps) >= 10
    rates = [learning_rate(config, int(s)) for s in steps]
    np.testing.assert_allclose(rates, case["lr"][: len(steps)], rtol=1e-9)


@pytest.mark.parametrize("schedule", ["inverse_sqrt", "cosine"])
def test_schedule_without_warm_up_starts_at_the_peak(schedule):
    config = TrainConfig(warmup=0, schedule=schedule)
    assert learning_rate(config, 0) == config.lr


def test_an_inverse_square_root_without_warm_up_begins_at_once():
    config = TrainConfig(warmup=0, lr=0.5)
    rates = [learning_rate(config, done) for done in (0, 1, 4, 100)]
    assert rates == pytest.approx([0.5, 0.5, 0.25, 0.05])


@pytest.mark.parametrize(
    ("scores", "patience", "expected"),
    [
        ([1, 2, 3], None, False),
        ([1, 2], 2, False),
        ([1, 3, 2], 2, False),
        ([3, 1, 2], 2, True),
        ([3, 3, 3], 2, True),
        ([math.nan, 1, 2], 2, False),
        ([1, math.nan, math.nan], 2, True),
        ([math.nan, math.nan], 1, True),
    ],
)
def test_early_stopping(scores, patience, expected):
    found = [Validation(1.0, score, "BLEU") for score in scores]
    assert ends_early(TrainConfig(patience=patience), found) is expected


def test_a_plateau_lowers_the_rate_after_each_validation_until_it_is_spent():
    config = TrainConfig(schedule="plateau", lr=0.25, lr_end=1e-4, warmup=0)
    losses = [3.0, 2.0, 2.5, 1.0, 0.9]  # what comes after the first worse one does not matter
    rates = [learning_rate(config, 100, losses[:n]) for n in range(6)]
    assert rates == pytest.approx([0.25, 0.25, 0.25, 0.025, 0.0025, 0.00025])
    found = [Validation(loss, 0.0, "BLEU") for loss in [*losses, 0.8]]
    assert not ends_early(config, found[:-1])
    assert ends_early(config, found)
    assert not ends_early(replace(config, schedule="inverse_sqrt"), found)


def test_a_loss_that_only_equals_the_best_ends_the_plateau():
    config = TrainConfig(schedule="plateau", lr=0.25, warmup=0)
    assert learning_rate(config, 100, [3.0, 2.0, 2.0]) == pytest.approx(0.025)


def test_an_entry_adds_a_schedule_that_ends_training(monkeypatch):
    entry = Schedule(lambda config, done, losses: 0.1, ends=lambda config, losses: len(losses) > 1)
    monkeypatch.setitem(SCHEDULES, "cosine", entry)
    config, found = TrainConfig(schedule="cosine"), [Validation(1.0, 0.0, "BLEU")]
    assert learning_rate(config, config.warmup) == 0.1
    assert ends_early(config, found * 2) and not ends_early(config, found)


def test_a_plateau_treats_nan_as_the_worst_loss():
    config = TrainConfig(schedule="plateau", lr=0.25, lr_end=1e-3, warmup=0)
    losses = [3.0, 2.0, math.nan, math.nan, math.nan]
    rates = [learning_rate(config, 100, losses[:n]) for n in range(6)]
    assert rates == pytest.approx([0.25, 0.25, 0.25, 0.025, 0.0025, 0.00025])
    found = [Validation(loss, 0.0, "BLEU") for loss in losses]
    assert ends_early(config, found) and not ends_early(config, found[:-1])
