"""Training that is interrupted, and the weights that it leaves."""

import signal
from pathlib import Path

import torch

from dynconv.train.checkpoint import Checkpoints


def stop_after(updates: int, monkeypatch, number=signal.SIGINT) -> None:
    """Send a signal (ctrl-C) in the update after which training must stop."""
    from dynconv.train import update

    count = 0
    original = update.backward

    def backward(*arguments, **options):
        nonlocal count
        count += 1
        if count == updates:
            signal.raise_signal(number)
        return original(*arguments, **options)

    monkeypatch.setattr(update, "backward", backward)


def weights(run: Path, name: str = "last") -> dict[str, torch.Tensor]:
    return Checkpoints(run).choose(name).read_weights()
