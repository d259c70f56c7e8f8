"""Collects the results of an experiment, and prints them as a table."""

from statistics import mean, stdev
from typing import Any

from dynconv.config import AnyModelConfig, ConvS2SConfig, Experiment
from dynconv.lab.experiment.run import DIVERGES, Run
from dynconv.models import count_parameters
from dynconv.table import align

SECONDS = "of updates with their data and log, without validations and checkpoints; null: not known"
"""an explanation of the seconds of a row, as the file states it"""
KEPT = ("metrics", "valid_loss", "seconds", "precision", "threads")
"""entries of a run's results that are listed per seed"""


def collect_results(experiment: Experiment, runs: list[Run]) -> dict[str, Any]:
    """Return all results; lists have one entry per seed, null until its run is finished."""
    rows = []
    for row in experiment.rows:
        runs_of_row = [run for run in runs if run.row == row.name]
        outcomes = [run.results if "score" in run.results else {} for run in runs_of_row]
        scores = [outcome.get("score") for outcome in outcomes]
        numbers = finite_scores(scores)
        recipe = runs_of_row[0].recipe
        rows.append(
            {
                "name": row.name,
                "row": row.printed_name,
                "published": row.published,
                "note": row.note,
                "mixer": lowest_mixer(recipe.model),
                "parameters": count_parameters(recipe.model),
                "updates": recipe.train.updates,
                "scores": scores,
                "mean": mean(numbers) if numbers else None,
                "deviation": stdev(numbers) if len(numbers) > 1 else None,
                **{key: [outcome.get(key) for outcome in outcomes] for key in KEPT},
            }
        )
    return {
        "source": experiment.source,
        "metric": (experiment.laptop or experiment).metric_in_words,
        "seconds_are": SECONDS,
        "rows": rows,
    }


def finite_scores(scores: list) -> list[float]:
    """Return the scores of the seeds that are finished and did not diverge."""
    return [score for score in scores if score not in (None, DIVERGES)]


def lowest_mixer(model: AnyModelConfig) -> str:
    """Return the mixer of the decoder's lowest layer, which gives a row its colour in the plot."""
    return "convs2s" if isinstance(model, ConvS2SConfig) else model.decoder.each_layer()[0][0]


def format_score(score: float | str | None) -> str:
    """Return a score with two decimals, DIVERGES as it is, and a dash for None."""
    return "-" if score is None else score if score == DIVERGES else f"{score:.2f}"


def format_scores(row: dict[str, Any]) -> str:
    """Return mean ± standard deviation over the seeds that did not diverge, and how many did."""
    diverged = row["scores"].count(DIVERGES)
    if row["mean"] is None:
        return DIVERGES if diverged else "-"
    spread = "" if row["deviation"] is None else f" ± {row['deviation']:.2f}"
    return f"{row['mean']:.2f}{spread}" + (f", {diverged} {DIVERGES}" if diverged else "")


def results_table(entry: dict[str, Any]) -> str:
    """Return a line per row: parameters, mean, each seed, mean seconds, the published score."""
    numbers = entry["numbers"]
    seeds = (f"seed {n}" for n in entry["seeds"])
    lines = [("", "parameters", "mean", *seeds, "s", "published")]
    for row in numbers["rows"]:
        times = [t for t in row["seconds"] if t is not None]
        lines.append(
            (
                row["name"],
                f"{row['parameters']:,}",
                format_scores(row),
                *map(format_score, row["scores"]),
                f"{mean(times):.0f}" if times else "-",
                row["published"] or "",
            )
        )
    about = [f"{numbers['experiment']}: {numbers['source']}", numbers["metric"]]
    aligned = align(lines, right=range(1, len(lines[0])))
    return "\n".join([*about, *map(str.rstrip, aligned)])
