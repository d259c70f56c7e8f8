"""Measurements that a user can repeat."""

import time
from statistics import median

from dynconv.decode import translate
from dynconv.decode.state import Incremental, Recompute
from dynconv.ledger import load
from dynconv.text import load_parallel
from dynconv.train import Trained


def bench_decode(trained: Trained, sentences: int | None, rounds: int) -> str:
    """Translate the first test sentences with and without incremental state, in turns.

    Both search alike and encode the source once; without state the decoder runs over the whole
    prefix at each step. The report gives medians and their ratio.
    """
    recipe, vocabularies, model, _ = trained
    data, config = recipe.data, recipe.decode
    lines = load_parallel(data.corpus, data.source, data.target, "test").source[:sentences]
    steppers = {"incremental": Incremental, "recompute": Recompute}
    seconds: dict[str, list[float]] = {name: [] for name in steppers}
    outputs = {}
    for _ in range(rounds):
        for name, stepper in steppers.items():
            start = time.perf_counter()
            outputs[name] = translate(
                model,
                vocabularies,
                lines,
                config,
                max_source=data.max_source,
                stepper=stepper,
            )
            seconds[name].append(time.perf_counter() - start)
    same = sum(a == b for a, b in zip(*outputs.values(), strict=True))
    words = sum(len(line.split()) for line in outputs["incremental"])
    fast, slow = (median(seconds[name]) for name in steppers)
    return "\n".join(
        [
            f"{len(lines)} sentences ({words} words out), beam {config.beam}, "
            f"medians of {rounds} rounds in turns, load {load()}",
            f"incremental  {fast:8.2f} s  {len(lines) / fast:8.1f} sentences/s",
            f"recompute    {slow:8.2f} s  {len(lines) / slow:8.1f} sentences/s",
            f"ratio        {slow / fast:8.2f}    {same} of {len(lines)} translations are equal",
        ]
    )
