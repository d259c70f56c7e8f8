"""The schedule of training: the learning rate of each update, and when training ends early."""

import math
from collections.abc import Sequence

from dynconv.config import TrainConfig
from dynconv.tasks import Validation

PLATEAU_FACTOR = 0.1
"""the factor of the schedule `plateau` (Gehring et al. 2017, section 4.2)"""


def learning_rate(config: TrainConfig, done: int, losses: Sequence[float] = ()) -> float:
    """Return the learning rate of the update that follows `done` updates.

    Warm-up is linear from lr_start to lr. After it:

    inverse_sqrt  lr sqrt(warmup / done) (Vaswani et al. 2017, section 5.3); without warm-up
                  lr / sqrt(done), which falls after the second update
    cosine        lr_end + (lr - lr_end) (1 + cos(pi p)) / 2, where p goes from 0 after warm-up to 1
                  after the last update (Loshchilov and Hutter 2017, equation 5)
    plateau       lr until a validation loss fails to improve, then divided by ten after that and
                  every later validation (Gehring et al. 2017, section 4.2); `losses` lists the
                  validation losses so far
    """
    if done < config.warmup:
        return config.lr_start + (config.lr - config.lr_start) * done / config.warmup
    return RATES[config.schedule](config, done, losses)


def inverse_sqrt(config: TrainConfig, done: int, losses: Sequence[float]) -> float:
    """Return lr, which falls by the square root of the updates."""
    return config.lr * math.sqrt(max(config.warmup, 1) / max(done, 1))


def cosine(config: TrainConfig, done: int, losses: Sequence[float]) -> float:
    """Return a rate between lr and lr_end, on half a cosine."""
    progress = (done - config.warmup) / max(config.updates - config.warmup, 1)
    return config.lr_end + (config.lr - config.lr_end) * (1 + math.cos(math.pi * progress)) / 2


def plateau(config: TrainConfig, done: int, losses: Sequence[float]) -> float:
    """Return lr, multiplied by PLATEAU_FACTOR for each validation since the first without progress.

    A loss that is NaN counts as infinite.
    """
    losses = [math.inf if math.isnan(loss) else loss for loss in losses]
    worse = (i for i in range(1, len(losses)) if losses[i] >= min(losses[:i]))
    return config.lr * PLATEAU_FACTOR ** (len(losses) - next(worse, len(losses)))


RATES = {"inverse_sqrt": inverse_sqrt, "cosine": cosine, "plateau": plateau}
"""functions of the schedules after warm-up, keyed by the names in `dynconv.config.recipe`"""


def ends_early(config: TrainConfig, history: Sequence[Validation]) -> bool:
    """Return whether training ends before its last update.

    True if the learning rate of the schedule `plateau` has fallen below lr_end, or if the last
    train.patience validations have not improved the score; NaN is worse than any other score.
    """
    losses = [validation.loss for validation in history]
    if config.schedule == "plateau" and plateau(config, 0, losses) < config.lr_end:
        return True
    if config.patience is None or len(history) <= config.patience:
        return False
    scores = [validation.quality[0] for validation in history]
    return max(scores[-config.patience :]) <= max(scores[: -config.patience])
