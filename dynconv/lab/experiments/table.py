"""The results of an experiment: as numbers, and as text."""

from statistics import mean, stdev
from typing import Any

import torch

from dynconv.config import AnyModelConfig, ConvS2SConfig, Experiment
from dynconv.lab.experiments.run import DIVERGES, Run
from dynconv.models import build

SECONDS = "of updates with their data and log, without validations and checkpoints; null: not known"
KEPT = ("metrics", "valid_loss", "seconds", "precision", "threads")
"""of what a run has found, beside its score"""


def results(experiment: Experiment, runs: list[Run]) -> dict[str, Any]:
    """All that is known; lists have an entry a seed, null before its run is finished."""
    rows = []
    for row in experiment.rows:
        own = [run for run in runs if run.row == row.name]
        found = [run.found if "score" in run.found else {} for run in own]
        scores = [each.get("score") for each in found]
        values = numbers(scores)
        recipe = own[0].recipe
        rows.append(
            {
                "name": row.name,
                "row": row.row,
                "published": row.published,
                "note": row.note,
                "mixer": mixer(recipe.model),
                "parameters": parameters(recipe.model),
                "updates": recipe.train.updates,
                "scores": scores,
                "mean": mean(values) if values else None,
                "deviation": stdev(values) if len(values) > 1 else None,
                **{key: [each.get(key) for each in found] for key in KEPT},
            }
        )
    return {
        "source": experiment.source,
        "metric": (experiment.laptop or experiment).metric,
        "seconds_are": SECONDS,
        "rows": rows,
    }


def numbers(scores: list) -> list[float]:
    """Of the seeds that are finished, those that did not diverge."""
    return [score for score in scores if score not in (None, DIVERGES)]


def parameters(model: AnyModelConfig) -> int:
    with torch.device("meta"):
        return sum(p.numel() for p in build(model).parameters())


def mixer(model: AnyModelConfig) -> str:
    """That of the decoder's lowest layer."""
    return "convs2s" if isinstance(model, ConvS2SConfig) else model.decoder.each_layer()[0][0]


def shown(score: float | str | None) -> str:
    """A score with two decimals, or the word in its place; a dash for none."""
    return "-" if score is None else score if score == DIVERGES else f"{score:.2f}"


def summary(row: dict[str, Any]) -> str:
    """Mean ± standard deviation of the seeds that have a number, and how many diverge."""
    fallen = row["scores"].count(DIVERGES)
    if row["mean"] is None:
        return DIVERGES if fallen else "-"
    spread = "" if row["deviation"] is None else f" ± {row['deviation']:.2f}"
    return f"{row['mean']:.2f}{spread}" + (f", {fallen} {DIVERGES}" if fallen else "")


def table(found: dict[str, Any]) -> str:
    """A line a row: parameters, mean and deviation, each seed, mean seconds, what was published."""
    numbers, seeds = found["numbers"], (f"seed {n}" for n in found["seeds"])
    head = ("", "parameters", "mean", *seeds, "s", "published")
    lines = [head]
    for row in numbers["rows"]:
        times = [t for t in row["seconds"] if t is not None]
        lines.append(
            (
                row["name"],
                f"{row['parameters']:,}",
                summary(row),
                *map(shown, row["scores"]),
                f"{mean(times):.0f}" if times else "-",
                row["published"] or "",
            )
        )
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    text = [f"{numbers['ablation']}: {numbers['source']}", numbers["metric"]]
    for name, *cells, last in lines:
        middle = (f"{cell:>{width}}" for cell, width in zip(cells, widths[1:-1], strict=True))
        text.append("  ".join([f"{name:{widths[0]}}", *middle, last]).rstrip())
    return "\n".join(text)
