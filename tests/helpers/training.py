"""Training that is interrupted, and the weights that it leaves."""

import signal
from pathlib import Path

import torch

from dynconv.train.checkpoints import Checkpoints
from dynconv.train.stopwatch import Stopwatch


def stop_after(updates: int, monkeypatch, number=signal.SIGINT) -> None:
    """Send a signal (ctrl-C) in the update after which training must stop."""
    count, original = 0, Stopwatch.lap

    def lap(watch, name):
        nonlocal count
        original(watch, name)
        if name == "data":  # the batches of an update are there
            count += 1
            if count == updates:
                signal.raise_signal(number)

    monkeypatch.setattr(Stopwatch, "lap", lap)


def weights(run: Path, name: str = "last") -> dict[str, torch.Tensor]:
    return Checkpoints(run).choose(name).read_weights()
