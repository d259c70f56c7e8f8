"""The precision of training: autocast's dtypes, and the choice for `train.precision: auto`."""

import time
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from statistics import median

import torch
from torch import nn

from dynconv.choices import Precision
from dynconv.config import Recipe
from dynconv.text import Examples
from dynconv.train.data import DataPosition, iter_batches

AUTOCAST_DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16}
"""autocast's dtypes, keyed by train.precision; float32 runs without autocast"""
SPEEDUP = 1.1
"""the minimum speed-up of an update at which bfloat16 is chosen"""
TIMED_BATCHES = 5
"""batches that are timed in both precisions, after one to warm up"""


def choose_precision(
    recipe: Recipe,
    examples: Examples,
    make_loss_module: Callable[[str], nn.Module],
    device: torch.device,
) -> Precision:
    """Return "bfloat16" if it makes this model's updates faster, else "float32".

    make_loss_module  returns the loss of a batch as a module that runs in the given precision

    On a GPU, bfloat16 is chosen if the hardware supports it. On a CPU, the first batches are timed
    in both precisions alternately, and their gradients discarded.
    """
    if device.type == "cuda":
        native = torch.cuda.is_bf16_supported(including_emulation=False)
        return "bfloat16" if native else "float32"
    seconds: dict[str, list[float]] = {"float32": [], "bfloat16": []}
    batches = iter_batches(examples, recipe.example_limit, recipe.train, DataPosition())
    for indices, _, _ in islice(batches, 1 + TIMED_BATCHES):
        batch = examples.batch(indices)
        for precision, timed in seconds.items():
            start = time.perf_counter()
            loss_module = make_loss_module(precision)
            loss_module(batch).backward()
            loss_module.zero_grad()
            timed.append(time.perf_counter() - start)
    times = {precision: median(timed[1:]) for precision, timed in seconds.items()}
    return "bfloat16" if times["float32"] >= SPEEDUP * times["bfloat16"] else "float32"


def with_precision(recipe: Recipe, precision: Precision) -> Recipe:
    """Return the recipe with this train.precision."""
    return replace(recipe, train=replace(recipe.train, precision=precision))
