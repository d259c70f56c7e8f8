"""Whether bfloat16 autocast pays on this machine, for this model."""

import time
from itertools import islice
from statistics import median

import torch

from dynconv.config import TrainConfig
from dynconv.models import Seq2Seq
from dynconv.text.batching import Pair
from dynconv.train.data import Place, stream
from dynconv.train.update import backward

WORTH = 1.1
"""bfloat16 is chosen when it makes an update at least this many times faster"""
BATCHES = 5
"""timed in turns, after one that warms up"""


def faster(model: Seq2Seq, pairs: list[Pair], config: TrainConfig) -> str:
    """The faster precision for this model and text: "bfloat16", or "float32" if it gains little.

    Measured on the first batches, their gradients thrown away.
    """
    device = next(model.parameters()).device
    if device.type == "cuda" and not torch.cuda.is_bf16_supported(including_emulation=False):
        return "float32"
    seconds: dict[str, list[float]] = {"float32": [], "bfloat16": []}
    batches = stream(pairs, config.batch_tokens, config.seed, Place())
    for batch, _ in islice(batches, 1 + BATCHES):
        for precision, timed in seconds.items():
            start = time.perf_counter()
            backward(model, [batch], smoothing=config.label_smoothing, precision=precision)
            model.zero_grad()
            timed.append(time.perf_counter() - start)
    times = {precision: median(timed[1:]) for precision, timed in seconds.items()}
    return "bfloat16" if times["float32"] >= WORTH * times["bfloat16"] else "float32"
