"""Where the time of training goes, and how near the device's peak it comes."""

import shlex
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from dynconv.config import Recipe, find_recipe, load_recipe
from dynconv.errors import UserError
from dynconv.lab import ledger
from dynconv.lab.bench.measure import Cpu
from dynconv.models import build
from dynconv.tasks import task_of
from dynconv.text import open_prepared
from dynconv.train import train
from dynconv.train.data import Place, UpdateBatches, iter_updates
from dynconv.train.distributed import Ranks
from dynconv.train.log import EACH, UPDATE, WARM, Watch, memory
from dynconv.train.setup import text_of
from dynconv.train.update import DTYPES, TokenLoss, backward

COUNTED = 5
"""updates whose arithmetic is counted"""
SIDE = 4096
"""of the square matrices whose product is the device's peak"""


def bench_train(
    name: str,
    overrides: Sequence[str],
    updates: int,
    synthetic: int | None,
    output: Path | None,
) -> str:
    """Train by a recipe in a scratch directory, one process, and measure `updates` updates.

    synthetic: so many pairs of random words instead of the recipe's corpus. Writes all numbers to
    `output`, by default data/results/bench-train.json; returns what to print.
    """
    output = ledger.output_path("bench-train", output)
    recipe = load_recipe(name, overrides)
    shown = name if ":" in name else find_recipe(name).stem
    command = shlex.join(["dynconv", "bench", "train", shown, *overrides])
    command += f" --updates {updates}" + (f" --synthetic {synthetic}" if synthetic else "")
    what = "training by one process: seconds of each part of an update, and its arithmetic"
    found = ledger.entry(what, command, {}, seeds=[recipe.train.seed])
    ranks = Ranks()
    watch = Watch(torch.cuda.synchronize if ranks.device.type == "cuda" else lambda: None)
    with TemporaryDirectory() as scratch:
        run = Path(scratch) / "run"
        data = recipe.data
        if synthetic and task_of(recipe).name == "language":
            raise UserError("--synthetic makes pairs: a language model takes its recipe's corpus")
        if synthetic:
            text = random_text(Path(scratch) / "text", synthetic)
            data = replace(data, corpus=str(text), source="a", target="b")
        short = {"updates": WARM + updates, "validate_every": WARM + updates, "warmup": 0}
        config = replace(recipe.train, **short, average=0)
        train(replace(recipe, data=data, train=config), run, watch)
        resolved = load_recipe(run / "recipe.yaml")  # its precision is decided
        corpus = open_prepared(text_of(run, resolved), verify=False)
        text = task_of(resolved).training_text(corpus)
        every = iter_updates(text, data.longest, config, Place(), ranks)
        measured = list(islice(every, WARM, WARM + updates))
    precision = resolved.train.precision
    each = {lap: (watch.seconds[lap] - watch.warm[lap]) / updates for lap in EACH}
    tokens = sum(work.tokens for work in measured) / updates
    some = measured[:: max(1, updates // COUNTED)]
    each_token = flops(resolved, some, ranks) / sum(work.tokens for work in some)
    save, computing = watch.seconds["save"], sum(each[lap] for lap in UPDATE)
    speed = tokens / sum(each.values())
    found["numbers"] = {
        "recipe": shown,
        "synthetic_pairs": synthetic,
        "threads": torch.get_num_threads(),
        "precision": precision,
        "updates": updates,
        "seconds": each,
        "validation_s": watch.seconds["validate"],
        "checkpoint_s": save,
        "overhead": (each["data"] + each["log"] + save / recipe.train.validate_every) / computing,
        "target_tokens_an_update": tokens,
        "target_tokens_per_s": speed,
        "memory_gb": memory(ranks.device) / 1e9,
        "flop_a_target_token": each_token,
        "flop_per_s": each_token * speed,
        "peak_flop_per_s": peak(precision, ranks.device),
    }
    ledger.write(output, found)
    return report(found, recipe.train.validate_every) + f"\nwritten to {output}"


def flops(recipe: Recipe, some: Sequence[UpdateBatches], ranks: Ranks) -> int:
    """Operations of the matrix products in these updates; the others are few beside them."""
    model = build(recipe.model).to(ranks.device)
    config = recipe.train
    loss_of = TokenLoss(model, task_of(recipe).loss, config.label_smoothing, config.precision)
    unscaled = torch.amp.GradScaler(ranks.device.type, enabled=False)
    with FlopCounterMode(display=False) as counter:
        for work in some:
            backward(loss_of, work, unscaled, ranks, Watch())
    return counter.get_total_flops()


def peak(precision: str, device: torch.device) -> float:
    """Operations a second of a product of two large square matrices, the best of five."""
    a, b = torch.randn(2, SIDE, SIDE, device=device, dtype=DTYPES.get(precision, torch.float32))

    def product() -> None:
        torch.mm(a, b)
        if device.type == "cuda":
            torch.cuda.synchronize()

    product()
    return 2 * SIDE**3 / min(Cpu().seconds(product) for _ in range(5))


def random_text(folder: Path, pairs: int) -> Path:
    """Pairs of sentences of words that mean nothing, as frequent and as long as real ones."""
    draw = np.random.default_rng(0)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    words = ["".join(draw.choice(letters, draw.integers(2, 10))) for _ in range(60_000)]
    folder.mkdir(parents=True)
    for split, count in {"train": pairs, "valid": 200}.items():
        for side in "ab":
            lengths = np.clip(draw.lognormal(2.9, 0.6, count).astype(int), 1, 100)
            ranked = draw.zipf(1.1, int(lengths.sum())) % len(words)
            lines = np.split(ranked, np.cumsum(lengths)[:-1])
            text = "".join(" ".join(words[i] for i in line) + "\n" for line in lines)
            (folder / f"{split}.{side}").write_text(text, encoding="utf-8")
    return folder


def report(found: dict, validate_every: int) -> str:
    """The numbers of bench train as text."""
    numbers, load = found["numbers"], found["load"]
    each, total = numbers["seconds"], sum(numbers["seconds"].values())
    share = numbers["flop_per_s"] / numbers["peak_flop_per_s"]
    return "\n".join(
        [
            f"{numbers['recipe']}, {numbers['precision']}, "
            f"{numbers['updates']} updates after {WARM}",
            ledger.source(found),
            f"{numbers['threads']} threads, load {load['before']} before, {load['after']} after",
            "",
            f"{'':12}{'ms':>10}{'share':>9}",
            *(f"{lap:12}{s * 1e3:10.2f}{s / total:9.1%}" for lap, s in each.items()),
            f"{'an update':12}{total * 1e3:10.2f}{1:9.0%}",
            "",
            f"a validation: {numbers['validation_s']:.2f} s; a checkpoint: "
            f"{numbers['checkpoint_s']:.2f} s, every {validate_every} updates",
            f"the loop itself (data, log, checkpoints): {numbers['overhead']:.2%} of the computing",
            f"{numbers['target_tokens_per_s']:,.0f} target tokens/s, "
            f"{numbers['target_tokens_an_update']:,.0f} an update; "
            f"{numbers['memory_gb']:.2f} GB at most",
            f"{numbers['flop_per_s'] / 1e12:.3g} TFLOP/s in matrix products, {share:.0%} of this "
            f"device's {numbers['peak_flop_per_s'] / 1e12:.3g} (a product of {SIDE} x {SIDE})",
        ]
    )
