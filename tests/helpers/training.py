"""Training that is interrupted, and the weights that it leaves."""

import signal
from pathlib import Path

import torch

from dynconv.train.checkpoint_store import CheckpointStore
from dynconv.train.stopwatch import Stopwatch


class StoppingWatch(Stopwatch):
    """Sends a signal (ctrl-C) so that training stops after `stop` updates, 2 or more.

    The signal arrives when the update before the last one is counted.
    """

    def __init__(self, stop: int, number: int = signal.SIGINT):
        super().__init__()
        self.stop, self.number = stop, number

    def count_update(self) -> None:
        super().count_update()
        if self.updates == self.stop - 1:
            signal.raise_signal(self.number)


def weights(run: Path, name: str = "last") -> dict[str, torch.Tensor]:
    return CheckpointStore(run).choose(name).read_weights()
