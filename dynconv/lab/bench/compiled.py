"""Measures on a CPU what torch.compile of a model's blocks costs and gains in training.

`python -m dynconv.lab.bench.compiled` writes data/results/compiled.json.
"""

import copy
import os
import time
from collections.abc import Callable, Iterator, Sequence
from statistics import median
from tempfile import TemporaryDirectory

import numpy as np
import torch
from torch import nn

from dynconv.config import load_recipe
from dynconv.lab import ledger
from dynconv.lab.bench.measure import median_and_range
from dynconv.models import build
from dynconv.models.activation_checkpointing import Recomputable
from dynconv.tasks import Task, task_of
from dynconv.text import Batch, collate_pairs
from dynconv.train.update import BatchLoss

RECIPE = "help-de-en-dynamic"
BATCHES, ROUNDS = 8, 4


def measure_compiled(overrides: Sequence[str], backend: str = "inductor") -> dict[str, float]:
    """Train eager and compiled blocks on the same batches, of random words and several lengths.

    graphs       graphs that PyTorch compiled; each has a forward and a backward part
    compile_s    CPU seconds, of compilers too, that the first pass through the batches took more
                 than with eager blocks
    eager_ms     CPU milliseconds of forward and backward of a batch, once all is compiled
    speedup      how many times as fast as that compiled blocks are, batch by batch
    difference   largest difference of a gradient, relative to the largest gradient
    """
    from torch._dynamo.utils import counters

    recipe = load_recipe(RECIPE, overrides)
    task, eager = task_of(recipe), build(recipe.model).train()
    compiled = copy.deepcopy(eager)
    for module in compiled.modules():
        if isinstance(module, Recomputable):
            module.compile(dynamic=True, backend=backend)
    torch.compiler.reset()
    counters.clear()
    batches = list(random_batches(recipe.train.batch_tokens, recipe.model.vocab_size))

    def run(model: nn.Module, batches: Sequence[Batch], now: Callable[[], float]) -> float:
        start = now()
        for batch in batches:
            compute_gradients(model, task, batch)
        return now() - start

    compile_s = run(compiled, batches, cpu_seconds) - run(eager, batches, cpu_seconds)
    pairs = list(zip(eager.parameters(), compiled.parameters(), strict=True))
    largest = max(p.grad.abs().max().item() for p, _ in pairs)
    times: list[float] = []
    ratios: list[float] = []
    for _ in range(ROUNDS):
        for batch in batches:
            fast = run(compiled, [batch], time.process_time)
            times.append(run(eager, [batch], time.process_time))
            ratios.append(times[-1] / fast)
    return {
        "graphs": counters["stats"]["unique_graphs"],
        "compile_s": compile_s,
        "eager_ms": 1e3 * median(times),
        **median_and_range("speedup", ratios),
        "difference": max((p.grad - q.grad).abs().max().item() for p, q in pairs) / largest,
    }


def compute_gradients(model: nn.Module, task: Task, batch: Batch) -> None:
    """Leave the gradients of a batch's loss in the model's parameters."""
    model.zero_grad()
    BatchLoss(model, task, task.recipe.train.precision)(batch).backward()


def random_batches(tokens: int, types: int) -> Iterator[Batch]:
    """Yield batches of sentences of random words, in each batch about equally long."""
    rng = np.random.default_rng(0)
    for length in rng.integers(6, 45, BATCHES):
        lengths = rng.integers(length - 3, length, (tokens // length, 2))
        yield collate_pairs([tuple(rng.integers(5, types, n) for n in pair) for pair in lengths])


def cpu_seconds() -> float:
    """Return the CPU seconds of this process, and of those that it started and that have ended."""
    return sum(os.times()[:4])


if __name__ == "__main__":
    what = "CPU seconds that torch.compile of the blocks takes, and speed-up of forward + backward"
    record = ledger.new_record(what, "python -m dynconv.lab.bench.compiled", {})
    torch.set_num_threads(1)
    with TemporaryDirectory() as cold:
        os.environ |= {"TORCHINDUCTOR_CACHE_DIR": cold, "TORCHINDUCTOR_COMPILE_THREADS": "1"}
        record["numbers"] = {"recipe": RECIPE} | {
            precision: measure_compiled([f"train.precision={precision}"])
            for precision in ("float32", "bfloat16")
        }
    ledger.write(ledger.output_path("compiled", None), record)
    print(record["numbers"])
