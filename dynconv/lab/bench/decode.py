"""`dynconv bench decode`: the time that decoding saves by keeping state between steps."""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

from dynconv.config import Recipe
from dynconv.config.recipe import OUTPUT_SETTINGS
from dynconv.config.unused import find_unused
from dynconv.decode.stepper import IncrementalStepper, RecomputingStepper
from dynconv.lab import ledger
from dynconv.lab.bench.measure import Measurement, median_and_range, paired_ratios, take_turns
from dynconv.text import load_parallel
from dynconv.train import TrainedModel
from dynconv.yaml12 import as_override


def bench_decode(
    trained: TrainedModel,
    directory: Path,
    *,
    sentences: int | None,
    rounds: int,
    output: Path | None,
    say: Callable[[str], None],
) -> None:
    """Translate the first test sentences with and without incremental state, and time both.

    Both search in the same way and encode the source once, but without state the decoder runs over
    the whole prefix at each step. They take turns, `rounds` times. Writes medians and ranges to
    `output`, by default data/results/bench-decode.json.
    """
    output = ledger.output_path("bench-decode", output)
    recipe, checkpoint = trained.recipe, trained.checkpoint
    data, config = recipe.data, recipe.decode
    text = str(trained.text_directory())
    lines = load_parallel(text, data.source, data.target, "test").source[:sentences]
    search = partial(trained.translate, lines)
    steppers = {"incremental": IncrementalStepper, "recompute": RecomputingStepper}
    runs = [
        Measurement("translate", name, "forward", call=partial(search, make_stepper=stepper))
        for name, stepper in steppers.items()
    ]
    overrides = overrides_of_decode(recipe)
    options = ["--sentences", len(lines), "--rounds", rounds, "--checkpoint", checkpoint.path.name]
    command = ledger.command_line("bench", "decode", directory, *options, *overrides)
    what = f"{len(lines):,} test sentences translated with and without incremental state, in turns"
    record = ledger.new_record(what, command, {}, seeds=[recipe.train.seed])
    translations = {}
    for run in take_turns(runs, rounds):
        start = time.perf_counter()
        translations[run.impl] = run.call()
        run.times.append(time.perf_counter() - start)
    fast, slow = (run.times for run in runs)
    numbers = record["numbers"] = {
        "sentences": len(lines),
        "words": sum(len(line.split()) for line in translations["incremental"]),
        "equal": sum(a == b for a, b in zip(*translations.values(), strict=True)),
        "rounds": rounds,
        "threads": torch.get_num_threads(),
        **median_and_range("incremental_s", fast),
        **median_and_range("recompute_s", slow),
        **median_and_range("ratio", paired_ratios(slow, fast)),
    }
    ledger.write(output, record)

    def row(name: str) -> str:
        low, high = numbers[f"{name}_range"]
        return f"{numbers[name]:8.2f} ({low:.2f} to {high:.2f})"

    say(
        f"{len(lines)} sentences ({numbers['words']} words out), beam {config.beam}, "
        f"medians and ranges of {rounds} rounds in turns, load {record['load']['before']}"
    )
    say(f"incremental  {row('incremental_s')} s")
    say(f"recompute    {row('recompute_s')} s")
    equal = f"{numbers['equal']} of {len(lines)} translations are equal"
    say(f"ratio        {row('ratio')}    {equal}")
    say(f"written to {output}")


def overrides_of_decode(recipe: Recipe) -> list[str]:
    """Return the decode settings of a recipe as overrides, to repeat them with any model."""
    unused = find_unused(recipe)
    return [
        f"decode.{name}={as_override(getattr(recipe.decode, name))}"
        for name in (*OUTPUT_SETTINGS, "batch_tokens")
        if f"decode.{name}" not in unused
    ]
