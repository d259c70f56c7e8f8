"""Optimizer, schedule, and when to validate, save and stop."""

import math
from dataclasses import dataclass
from typing import Literal

from dynconv.config.checks import require_positive


@dataclass(frozen=True)
class TrainConfig:
    """Optimizer, schedule, and when to validate, save and stop."""

    __pydantic_config__ = {"extra": "forbid"}

    updates: int = 30_000
    """optimizer updates in all"""
    batch_tokens: int = 4096
    """most tokens, padding included, on either side of a batch"""
    batch_sentences: int | None = None
    """most sentences of a batch; null: as many as its tokens allow"""
    accumulate: int = 1
    """batches in one update, for each process"""
    lr: float = 5e-4
    """the peak, reached after warm-up"""
    warmup: int = 4000
    """updates of linear growth from lr_start to lr"""
    schedule: Literal["inverse_sqrt", "cosine", "plateau"] = "inverse_sqrt"
    """after warm-up: lr sqrt(warmup / u); half a cosine down to lr_end at the last update; or
    lr, and from the first validation whose loss is no better a tenth of the rate before after
    each validation, until it falls below lr_end, which ends training"""
    lr_start: float = 1e-7
    lr_end: float = 1e-7
    """the cosine's lowest point; where plateau ends"""
    optimizer: Literal["adam", "nag"] = "adam"
    """AdamW, or Nesterov's accelerated gradient, stochastic gradient descent with `momentum`"""
    momentum: float = 0.99
    betas: tuple[float, float] = (0.9, 0.98)
    eps: float = 1e-8
    weight_decay: float = 0.0
    label_smoothing: float = 0.1
    clip: float | None = None
    """largest norm of the gradient of the mean loss per token; null: no clipping"""
    validate_every: int = 1000
    """updates between checkpoints; each one is validated"""
    patience: int | None = None
    """validations without a better score before training stops; null: never"""
    keep: int = 5
    """newest checkpoints that stay, beside the best"""
    average: int = 0
    """last checkpoints whose mean is added at the end; 0: none"""
    precision: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """auto: bfloat16 autocast where it makes this model's updates faster than float32 does;
    float16 scales the loss, and halves the scale when a gradient overflows"""
    skip: int = 3
    """updates in a row whose loss or gradient is not finite that are left out; one more: stop"""
    seed: int = 1
    timeout: float = 60.0
    """seconds after which a process that does not answer the others within an update counts as
    lost; validations, checkpoints and traces may take longer"""

    def __post_init__(self) -> None:
        require_positive(self, "updates", "batch_tokens", "accumulate", "validate_every", "keep")
        if not 0 <= self.warmup <= self.updates:
            raise ValueError(f"warmup {self.warmup} must be within the {self.updates} updates")
        for name in ("skip", "average", "seed", "lr", "lr_start", "lr_end", "weight_decay"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name} {getattr(self, name)} must be at least 0, and finite")
        if self.patience is not None and self.patience < 1:
            raise ValueError(f"patience {self.patience} must be at least 1, or null")
        if self.clip is not None and not self.clip > 0:
            raise ValueError(f"clip {self.clip} must be above 0, or null for none")
        if not 0 < self.timeout < math.inf:
            raise ValueError(f"timeout {self.timeout} must be above 0, and finite")
        if self.batch_sentences is not None:
            require_positive(self, "batch_sentences")
        if not 0 < self.momentum < 1:
            raise ValueError(f"momentum {self.momentum} must be above 0 and below 1")
        if self.average > self.keep:
            raise ValueError(f"average {self.average} needs more than the {self.keep} kept")
