"""`dynconv bench train`: where the time of training goes, and its share of the peak."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from dynconv.config import DataConfig, Recipe, load_recipe, run_name
from dynconv.config.load import refuse_overrides
from dynconv.errors import UserError
from dynconv.lab import ledger
from dynconv.lab.bench.measure import CpuClock
from dynconv.machine import peak_memory
from dynconv.models import build
from dynconv.models.activation_checkpointing import set_activation_checkpointing
from dynconv.tasks import task_of
from dynconv.text import open_prepared
from dynconv.train import train
from dynconv.train.data import DataPosition, UpdateBatches, iter_updates
from dynconv.train.distributed import World
from dynconv.train.precision import AUTOCAST_DTYPES
from dynconv.train.run_corpus import prepared_dir
from dynconv.train.run_directory import read_recipe
from dynconv.train.stopwatch import COMPUTE_LAPS, LAPS, WARMUP_UPDATES, Stopwatch
from dynconv.train.update import BatchLoss, accumulate_gradients

COUNTED = 5
"""updates whose FLOPs are counted"""
DECIDED = {"warmup": 0, "average_checkpoints": 0}
"""entries of `train` that have this value in every measurement"""
SIDE = 4096
"""rows of the square matrices whose product shows a CPU's peak; a GPU takes twice as many"""


def bench_train(
    name: str,
    overrides: Sequence[str],
    *,
    updates: int,
    synthetic: int | None,
    output: Path | None,
    say: Callable[[str], None],
) -> None:
    """Train by a recipe in a temporary directory, and measure `updates` updates.

    synthetic  how many lines of random words to train on, instead of the recipe's corpus
    output     JSON; None: data/results/bench-train.json
    """
    output = ledger.output_path("bench-train", output)
    options = ["--updates", updates, *(["--synthetic", synthetic] if synthetic else [])]
    command = ledger.command_line("bench", "train", name, *overrides, *options)
    keys = [f"train.{name}" for name in ("updates", *DECIDED)]
    reason = "has no effect: only updates at full rate are measured, as many as --updates says"
    refuse_overrides(overrides, keys, f"{reason}; leave it out")
    recipe = load_recipe(name, overrides)
    what = "training by one process: seconds of each part of an update, and its arithmetic"
    record = ledger.new_record(what, command, {}, seeds=[recipe.train.seed])
    record["numbers"] = {
        "recipe": run_name(name),
        "synthetic_pairs": synthetic,
        "threads": torch.get_num_threads(),
        **measure_training(recipe, updates, synthetic),
    }
    ledger.write(output, record)
    say(describe_training(record, recipe.train.checkpoint_every))
    say(f"written to {output}")


def measure_training(recipe: Recipe, updates: int, synthetic: int | None) -> dict[str, Any]:
    """Train in one process and a temporary directory, and return what the record says of it.

    On a GPU it trains twice, because timing the parts of an update waits for the GPU after each:
    only the first run shows the time of a whole update.
    """
    world = World()
    with TemporaryDirectory() as directory:
        if synthetic:
            text = random_text(Path(directory) / "text", synthetic, recipe.data)
            recipe = replace(recipe, data=replace(recipe.data, corpus=str(text)))
        for number, watch in enumerate(watches := make_stopwatches(world.device)):
            run = Path(directory) / f"run-{number}"
            resolved, measured = train_briefly(recipe, updates, run, watch, world)
    precision = resolved.train.precision
    seconds = seconds_per_update(watch, updates)
    whole = sum(seconds_per_update(watches[0], updates).values())
    tokens = sum(update.tokens for update in measured) / updates
    counted = measured[:: max(1, updates // COUNTED)]
    per_token = count_flops(resolved, counted, world) / sum(update.tokens for update in counted)
    save = watch.seconds["save"]
    computing = sum(seconds[lap] for lap in COMPUTE_LAPS)
    overhead = seconds["data"] + seconds["log"] + save / recipe.train.checkpoint_every
    speed = tokens / whole
    return {
        "precision": precision,
        "updates": updates,
        "seconds": seconds,
        "update_s": whole,
        "validation_s": watch.seconds["validate"],
        "checkpoint_s": save,
        "overhead": overhead / computing,
        "target_tokens_per_update": tokens,
        "target_tokens_per_s": speed,
        "memory_gb": peak_memory(world.device) / 1e9,
        "flop_per_target_token": per_token,
        "flop_per_s": per_token * speed,
        "peak_flop_per_s": measure_peak(precision, world.device),
        "peak_side": peak_side(world.device),
    }


def make_stopwatches(device: torch.device) -> list[Stopwatch]:
    """Return the stopwatches of the runs.

    The first never waits for the device; on a GPU, a second one waits after each part of an update.
    """
    return [Stopwatch(), *[Stopwatch(torch.cuda.synchronize)] * (device.type == "cuda")]


def seconds_per_update(watch: Stopwatch, updates: int) -> dict[str, float]:
    """Return the seconds of each part of an update after the warm-up."""
    return {lap: (watch.seconds[lap] - watch.warmup_seconds[lap]) / updates for lap in LAPS}


def train_briefly(
    recipe: Recipe, updates: int, run: Path, watch: Stopwatch, world: World
) -> tuple[Recipe, list[UpdateBatches]]:
    """Train for the warm-up and `updates` more updates.

    Return the recipe, in which the precision is decided, and the batches of these updates. They are
    drawn again after training, which does not keep them. Raises UserError if a signal ended
    training, because the times would then be of fewer updates.
    """
    last = WARMUP_UPDATES + updates
    config = replace(recipe.train, updates=last, checkpoint_every=last, **DECIDED)
    if signal := train(replace(recipe, train=config), run, watch):
        raise UserError(f"stopped by {signal.name}: nothing was measured, so run it again")
    resolved = read_recipe(run)
    corpus = open_prepared(prepared_dir(run, resolved), verify=False)
    text = task_of(resolved).training_examples(corpus)
    batches = iter_updates(text, recipe.example_limit, config, DataPosition(), world)
    return resolved, list(islice(batches, WARMUP_UPDATES, last))


def count_flops(recipe: Recipe, updates: Sequence[UpdateBatches], world: World) -> int:
    """Count the FLOPs of the matrix products in these updates; other operations need far fewer."""
    model = build(recipe.model).to(world.device)
    set_activation_checkpointing(model, recipe.train.checkpoint_activations)
    loss_module = BatchLoss(model, task_of(recipe), recipe.train.precision)
    unscaled = torch.amp.GradScaler(world.device.type, enabled=False)
    with FlopCounterMode(display=False) as counter:
        for update in updates:
            accumulate_gradients(loss_module, update, unscaled, world, Stopwatch())
    return counter.get_total_flops()


def measure_peak(precision: str, device: torch.device) -> float:
    """Return the FLOPs per second of a product of two large square matrices, the best of five."""
    dtype = AUTOCAST_DTYPES.get(precision, torch.float32)
    side = peak_side(device)
    a, b = torch.randn(2, side, side, device=device, dtype=dtype)

    def product() -> None:
        torch.mm(a, b)
        if device.type == "cuda":
            torch.cuda.synchronize()

    product()
    return 2 * side**3 / min(CpuClock().seconds(product) for _ in range(5))


def peak_side(device: torch.device) -> int:
    """Return the rows of the matrices of `measure_peak`: a GPU needs more to reach its peak."""
    return 2 * SIDE if device.type == "cuda" else SIDE


def random_text(directory: Path, lines: int, data: DataConfig) -> Path:
    """Write sentences of random words, as frequent and as long as real ones, for all sides."""
    rng = np.random.default_rng(0)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    words = ["".join(rng.choice(letters, rng.integers(2, 10))) for _ in range(60_000)]
    directory.mkdir(parents=True)
    for split, count in {"train": lines, "valid": 200}.items():
        for suffix in data.suffixes:
            lengths = np.clip(rng.lognormal(2.9, 0.6, count).astype(int), 1, 100)
            ranks = rng.zipf(1.1, int(lengths.sum())) % len(words)
            sentences = np.split(ranks, np.cumsum(lengths)[:-1])
            text = "".join(" ".join(words[rank] for rank in line) + "\n" for line in sentences)
            (directory / f"{split}.{suffix}").write_text(text, encoding="utf-8")
    return directory


def describe_training(record: dict, checkpoint_every: int) -> str:
    """Return the numbers of a record as text."""
    numbers, load = record["numbers"], record["load"]
    seconds = numbers["seconds"]
    total = sum(numbers["seconds"].values())
    side = numbers["peak_side"]
    share = numbers["flop_per_s"] / numbers["peak_flop_per_s"]
    return "\n".join(
        [
            f"{numbers['recipe']}, {numbers['precision']}, "
            f"{numbers['updates']} updates after {WARMUP_UPDATES}",
            ledger.describe_origin(record),
            f"{numbers['threads']} threads, load {load['before']} before, {load['after']} after",
            "",
            f"{'':12}{'ms':>10}{'share':>9}",
            *(f"{lap:12}{s * 1e3:10.2f}{s / total:9.1%}" for lap, s in seconds.items()),
            f"{'an update':12}{total * 1e3:10.2f}{1:9.0%}",
            f"{'undisturbed':12}{numbers['update_s'] * 1e3:10.2f}",
            "",
            f"a validation: {numbers['validation_s']:.2f} s; a checkpoint: "
            f"{numbers['checkpoint_s']:.2f} s, every {checkpoint_every} updates",
            f"the loop itself (data, log, checkpoints): {numbers['overhead']:.2%} of the computing",
            f"{numbers['target_tokens_per_s']:,.0f} target tokens/s, "
            f"{numbers['target_tokens_per_update']:,.0f} per update; "
            f"{numbers['memory_gb']:.2f} GB at most",
            f"{numbers['flop_per_s'] / 1e12:.3g} TFLOP/s in matrix products, {share:.0%} of this "
            f"device's {numbers['peak_flop_per_s'] / 1e12:.3g} (a product of {side} x {side})",
        ]
    )
