"""Trains selective layers without their short convolution to recall pairs, for lesson 34.

`python -m dynconv.teach.controls.short_convolution` writes
data/results/recall-without-convolution.json.
"""

from unittest.mock import patch

import torch
import torch.nn.functional as F
from torch import Tensor

from dynconv.lab.recall import train_recall
from dynconv.layers.selective import SelectiveScan
from dynconv.teach.checkout import run_tool
from dynconv.teach.controls.control import Control, record_control

COMMAND = "python -m dynconv.teach.controls.short_convolution"
WHAT = """Share of four pairs that two selective layers recall after 2,000 updates if their short \
convolution reads only the current word, per seed"""
RATES = (0.003, 0.01)
SEEDS = (1, 2, 3)


def read_one_word(self: SelectiveScan, x: Tensor) -> Tensor:
    """Return what `convolve` does for kernels that are zero except for the current word."""
    return F.silu(x * self.kernel[:, -1].to(x.dtype) + self.bias.to(x.dtype))


def without_convolution() -> dict[str, list[float]]:
    """Return the accuracies per learning rate, one per seed."""
    mixers = ("selective", "selective")
    with patch.object(SelectiveScan, "convolve", read_one_word):
        return {
            f"rate {lr}": [
                round(train_recall(mixers, 4, lr, updates=2000, seed=seed)[0], 4) for seed in SEEDS
            ]
            for lr in RATES
        }


def main() -> None:
    """Train and record them."""
    torch.set_num_threads(1)
    record_control("recall-without-convolution", Control(WHAT, SEEDS, without_convolution), COMMAND)


if __name__ == "__main__":
    run_tool(main)
