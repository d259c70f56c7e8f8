"""Measures how far the channels drift that a trained TaLK translator sums, for lesson 14.

`python -m dynconv.teach.controls.talk_drift RUN` writes data/results/talk-drift.json.
"""

import argparse
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dynconv.layers import TaLKConv
from dynconv.teach.checkout import run_tool
from dynconv.teach.controls.control import Control, record_control
from dynconv.text import load_parallel
from dynconv.train import load_model

RECIPE = "help-de-en-tuned:talk train.precision=bfloat16 train.seed=2"
COMMAND = f"""dynconv train {RECIPE} --run runs/talk
python -m dynconv.teach.controls.talk_drift runs/talk"""
WHAT = "How far TaLK's channels drift: |mean| / deviation, quantiles over 192 channels"


def measure_drift(run: Path) -> dict[str, Any]:
    """Return quantiles of |mean| / deviation over the channels that each TaLK layer sums."""
    trained = load_model(run)
    summed: dict[str, list[Tensor]] = {}

    def watch(name: str, layer: TaLKConv) -> None:
        mix, summed[name] = layer._mix, []

        def watched(x: Tensor) -> Tensor:
            words = x.detach().float().flatten(0, 1)
            summed[name].append(words[words.abs().sum(1) > 0])  # without padding
            return mix(x)

        layer._mix = watched

    for name, layer in trained.model.encoder.named_modules():
        if isinstance(layer, TaLKConv):
            watch(name, layer)
    lines = load_parallel("libreoffice-de-en", "de", "en", "test").source[:100]
    trained.translate(lines)
    numbers = {}
    for name, parts in summed.items():
        words = torch.cat(parts)
        share = (words.mean(0).abs() / words.std(0)).double()
        numbers[name] = {str(q): round(share.quantile(q).item(), 2) for q in (0.1, 0.5, 0.9)}
    return numbers


def main() -> None:
    """Measure and record."""
    parser = argparse.ArgumentParser(description="Measure how far TaLK's channels drift.")
    parser.add_argument("run", type=Path, help="a trained TaLK translator")
    run = parser.parse_args().run
    record_control("talk-drift", Control(WHAT, [2], partial(measure_drift, run)), COMMAND)


if __name__ == "__main__":
    run_tool(main)
