"""Trains retention with heads that fade as usual, and with heads that fade faster, for lesson 34.

`python -m dynconv.teach.controls.fast_fading FOLDER` trains both in FOLDER, or continues there,
and writes data/results/fast-fading.json.
"""

import argparse
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from unittest.mock import patch

import torch
from torch import Tensor

from dynconv.config import load_recipe
from dynconv.dtypes import accumulator_dtype
from dynconv.layers import Retention
from dynconv.teach.checkout import run_tool
from dynconv.teach.controls.control import Control, record_control
from dynconv.train import load_model, train

RECIPE = "help-de-en-retention"
OVERRIDES = ["train.precision=bfloat16", "train.seed=1", "train.updates=525"]
COMMAND = "python -m dynconv.teach.controls.fast_fading runs/fading"
WHAT = f"""BLEU on the test split (beam 5) of two translators, each after `dynconv train \
{RECIPE} {" ".join(OVERRIDES)}`: with retention as it is, whose head h keeps 1 - 2^(-5 - h) of its \
state at each position, and with 1 - 2^(-1 - h) instead"""


def faster_gamma(self: Retention, x: Tensor) -> Tensor:
    """Return the share 1 - 2^(-1 - h) that head h keeps of its state, from h = 0."""
    h = torch.arange(self.heads, device=x.device, dtype=accumulator_dtype(x.dtype))
    return 1 - 2 ** (-1 - h)


def faster_fading() -> AbstractContextManager:
    """Return a context in which every retention layer keeps `faster_gamma` of its state."""
    return patch.object(Retention, "_gamma", faster_gamma)


def train_and_score(run: Path, *, fast: bool) -> dict[str, float]:
    """Train in a run directory, or continue there; return the loss and the BLEU."""
    with faster_fading() if fast else nullcontext():
        train(load_recipe(RECIPE, OVERRIDES), run)
        trained = load_model(run)
        (score, *_) = trained.evaluate("test").record["scores"]
    return {"valid_loss": trained.checkpoint.meta["loss"], "bleu": score["value"]}


def measure_fading(folder: Path) -> dict[str, dict[str, float]]:
    """Return the loss and the BLEU of both, which are trained in a folder, or continued there."""
    return {
        name: train_and_score(folder / name, fast=name == "faster") for name in ("usual", "faster")
    }


def main() -> None:
    """Train both and record them."""
    parser = argparse.ArgumentParser(description="Train retention with heads that fade faster.")
    parser.add_argument("folder", type=Path, help="where both translators are trained")
    folder = parser.parse_args().folder
    torch.set_num_threads(1)
    record_control("fast-fading", Control(WHAT, [1], partial(measure_fading, folder)), COMMAND)


if __name__ == "__main__":
    run_tool(main)
