"""What is told after each update: on the bar, and every now and then in the log."""

import resource
import sys

import torch

from dynconv.config import TrainConfig
from dynconv.train.log import Log, Silence
from dynconv.train.watch import Watch

LOG_EVERY = 20
"""updates between two lines of log.jsonl"""


class Progress:
    """Sums what happens between two lines of the log."""

    def __init__(self, log: Log | Silence, watch: Watch, config: TrainConfig, device: torch.device):
        self._log, self._watch, self._config, self._device = log, watch, config, device
        self._begin()

    def _begin(self) -> None:
        self._loss, self._tokens, self._since = 0.0, 0, self._watch.training

    def update(
        self, done: int, loss: float, tokens: int, *, lr: float, norm: float, scale: float
    ) -> None:
        """Update number `done` is made: the sum of its loss, and its tokens, over all ranks."""
        self._watch.update()
        self._loss, self._tokens = self._loss + loss, self._tokens + tokens
        left = self.left(done)
        self._log.progress(loss=f"{loss / tokens:.3g}", lr=f"{lr:.3g}", left=interval(left))
        if done % LOG_EVERY == 0:
            self._log.event(
                "train",
                done,
                loss=self._loss / self._tokens,
                lr=lr,
                norm=norm,
                scale=scale,
                tokens_per_s=self._tokens / (self._watch.training - self._since),
                memory_gb=memory(self._device) / 1e9,
                left_s=left,
                overhead=self._watch.overhead,
            )
            self._begin()

    def left(self, done: int) -> float | None:
        """Seconds until the last update and its validation; None while it is too early to tell."""
        updates, every = self._config.updates, self._config.validate_every
        return self._watch.left(updates - done, -(-updates // every) - done // every)


def memory(device: torch.device) -> int:
    """The most bytes so far: of tensors on a GPU, or of the process on a CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    unit = 1 if sys.platform == "darwin" else 1024  # Linux counts in kilobytes
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def interval(seconds: float | None) -> str:
    """As 1:02:03."""
    from tqdm import tqdm

    return "?" if seconds is None else tqdm.format_interval(seconds)
