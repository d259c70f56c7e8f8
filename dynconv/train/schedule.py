"""The learning rate of each update."""

import math
from collections.abc import Sequence

from dynconv.config import TrainConfig

SHRINK = 0.1
"""the factor of `plateau` (Gehring et al. 2017, section 4.2)"""


def learning_rate(config: TrainConfig, done: int, losses: Sequence[float] = ()) -> float:
    """The rate of the update that follows `done` updates.

    Warm-up is linear from lr_start to lr. Then `inverse_sqrt`: lr sqrt(warmup / done) (Vaswani et
    al. 2017, section 5.3); `cosine`: lr_end + (lr - lr_end) (1 + cos(pi p)) / 2, where p goes from
    0 after warm-up to 1 after the last update (Loshchilov and Hutter 2017, equation 5); `plateau`:
    lr until one of `losses`, those of the validations so far, is no better than the best before it,
    and a tenth of the rate before after that validation and each that follows.
    """
    if done < config.warmup:
        return config.lr_start + (config.lr - config.lr_start) * done / config.warmup
    if config.schedule == "inverse_sqrt":
        return config.lr * math.sqrt(max(config.warmup, 1) / max(done, 1))
    if config.schedule == "plateau":
        return plateau(config, losses)
    progress = (done - config.warmup) / max(config.updates - config.warmup, 1)
    return config.lr_end + (config.lr - config.lr_end) * (1 + math.cos(math.pi * progress)) / 2


def plateau(config: TrainConfig, losses: Sequence[float]) -> float:
    """lr, times SHRINK for each validation from the first that was no better than the best."""
    worse = (i for i in range(1, len(losses)) if losses[i] >= min(losses[:i]))
    return config.lr * SHRINK ** (len(losses) - next(worse, len(losses)))
