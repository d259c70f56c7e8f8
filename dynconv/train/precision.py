"""Chooses the precision of training for `train.precision: auto`."""

import time
from dataclasses import replace
from itertools import islice
from statistics import median

import torch
from torch import nn

from dynconv.choices import Precision
from dynconv.tasks import Task
from dynconv.text import Examples
from dynconv.train.data import DataPosition, iter_updates
from dynconv.train.distributed import Ranks
from dynconv.train.stopwatch import Stopwatch
from dynconv.train.update import BatchLoss, backward

SPEEDUP = 1.1
"""the minimum speed-up of an update at which bfloat16 is chosen"""
TIMED_BATCHES = 5
"""batches that are timed in both precisions, after one to warm up"""


def choose_precision(
    model: nn.Module, task: Task, examples: Examples, device: torch.device
) -> Precision:
    """Return "bfloat16" if it makes this model's updates faster, else "float32".

    On a GPU, bfloat16 is chosen if the hardware supports it. On a CPU, the first batches are timed
    in both precisions alternately, and their gradients discarded.
    """
    if device.type == "cuda":
        native = torch.cuda.is_bf16_supported(including_emulation=False)
        return "bfloat16" if native else "float32"
    seconds: dict[str, list[float]] = {"float32": [], "bfloat16": []}
    single = Ranks(device=device)
    unscaled = torch.amp.GradScaler(device.type, enabled=False)
    config = replace(task.recipe.train, accumulate=1)
    updates = iter_updates(examples, task.recipe.longest_example, config, DataPosition(), single)
    for update in islice(updates, 1 + TIMED_BATCHES):
        for precision, timed in seconds.items():
            start = time.perf_counter()
            loss_module = BatchLoss(model, task, precision)
            torch.stack(backward(loss_module, update, unscaled, single, Stopwatch())).sum().item()
            model.zero_grad()
            timed.append(time.perf_counter() - start)
    times = {precision: median(timed[1:]) for precision, timed in seconds.items()}
    return "bfloat16" if times["float32"] >= SPEEDUP * times["bfloat16"] else "float32"
