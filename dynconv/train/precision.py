"""Whether bfloat16 autocast pays on this machine, for this model."""

import time
from dataclasses import replace
from itertools import islice
from statistics import median

import torch
from torch import nn

from dynconv.config import Recipe
from dynconv.train.data import Corpus, Place, works
from dynconv.train.ranks import Ranks
from dynconv.train.update import TokenLoss, backward
from dynconv.train.watch import Watch

WORTH = 1.1
"""bfloat16 is chosen when it makes an update at least this many times faster"""
BATCHES = 5
"""timed in turns, after one that warms up"""


def faster(model: nn.Module, corpus: Corpus, recipe: Recipe, device: torch.device) -> str:
    """The faster precision for this model and text: "bfloat16", or "float32" if it gains little.

    Known of a GPU; on a CPU measured on the first batches, their gradients thrown away.
    """
    if device.type == "cuda":
        native = torch.cuda.is_bf16_supported(including_emulation=False)
        return "bfloat16" if native else "float32"
    seconds: dict[str, list[float]] = {"float32": [], "bfloat16": []}
    alone, unscaled = Ranks(device=device), torch.amp.GradScaler(device.type, enabled=False)
    single = replace(recipe.train, accumulate=1)
    for work in islice(works(corpus, recipe.data.longest, single, Place(), alone), 1 + BATCHES):
        for precision, timed in seconds.items():
            start = time.perf_counter()
            loss_of = TokenLoss(model, recipe.train.label_smoothing, precision)
            sum(backward(loss_of, work, unscaled, alone, Watch())).item()
            model.zero_grad()
            timed.append(time.perf_counter() - start)
    times = {precision: median(timed[1:]) for precision, timed in seconds.items()}
    return "bfloat16" if times["float32"] >= WORTH * times["bfloat16"] else "float32"
