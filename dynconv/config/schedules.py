"""The learning rate of each update: warm-up, then one of the schedules that recipes can name."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from dynconv.config import TrainConfig

PLATEAU_FACTOR = 0.1
"""the factor of the schedule `plateau` (Gehring et al. 2017, section 4.2)"""


def inverse_sqrt(config: TrainConfig, done: int, losses: Sequence[float]) -> float:
    """Return lr sqrt(warmup / done) (Vaswani et al. 2017, section 5.3).

    Without warm-up it is lr / sqrt(done), which falls after the second update.
    """
    return config.lr * math.sqrt(max(config.warmup, 1) / max(done, 1))


def cosine(config: TrainConfig, done: int, losses: Sequence[float]) -> float:
    """Return lr_end + (lr - lr_end) (1 + cos(pi p)) / 2 (Loshchilov and Hutter 2017, equation 5).

    p goes from 0 after warm-up to 1 after the last update.
    """
    progress = (done - config.warmup) / max(config.updates - config.warmup, 1)
    return config.lr_end + (config.lr - config.lr_end) * (1 + math.cos(math.pi * progress)) / 2


def plateau(config: TrainConfig, done: int, losses: Sequence[float]) -> float:
    """Return lr, multiplied by PLATEAU_FACTOR for each validation since the first without progress.

    `losses` lists the loss of each validation so far; NaN counts as infinite.
    """
    losses = [math.inf if math.isnan(loss) else loss for loss in losses]
    worse = (i for i in range(1, len(losses)) if losses[i] >= min(losses[:i]))
    return config.lr * PLATEAU_FACTOR ** (len(losses) - next(worse, len(losses)))


def plateau_ends(config: TrainConfig, losses: Sequence[float]) -> bool:
    """Return whether the rate has fallen below lr_end."""
    return plateau(config, 0, losses) < config.lr_end


class Schedule(NamedTuple):
    """A schedule of the learning rate."""

    rate: Callable[[TrainConfig, int, Sequence[float]], float]
    """returns the learning rate after `done` updates, and validations with these losses"""
    options: tuple[str, ...] = ()
    """the entries of `train` that it reads and others do not"""
    ends: Callable[[TrainConfig, Sequence[float]], bool] = lambda config, losses: False
    """returns whether it ends training after validations with these losses"""


SCHEDULES = {
    "inverse_sqrt": Schedule(inverse_sqrt),
    "cosine": Schedule(cosine, options=("lr_end",)),
    "plateau": Schedule(plateau, options=("lr_end",), ends=plateau_ends),
}


def learning_rate(config: TrainConfig, done: int, losses: Sequence[float] = ()) -> float:
    """Return the learning rate of the update that follows `done` updates.

    Warm-up is linear from lr_start to lr, and the schedule decides what follows it. `losses` lists
    the losses of the validations so far.
    """
    if done < config.warmup:
        return config.lr_start + (config.lr - config.lr_start) * done / config.warmup
    return SCHEDULES[config.schedule].rate(config, done, losses)
