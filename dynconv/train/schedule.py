"""The schedule of training: the learning rate of each update, and when training ends early."""

from collections.abc import Sequence

from dynconv.config import TrainConfig
from dynconv.config.schedules import SCHEDULES, plateau
from dynconv.tasks import Validation


def learning_rate(config: TrainConfig, done: int, losses: Sequence[float] = ()) -> float:
    """Return the learning rate of the update that follows `done` updates.

    Warm-up is linear from lr_start to lr; `dynconv.config.schedules` has what follows it. `losses`
    lists the losses of the validations so far.
    """
    if done < config.warmup:
        return config.lr_start + (config.lr - config.lr_start) * done / config.warmup
    return SCHEDULES[config.schedule].rate(config, done, losses)


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
