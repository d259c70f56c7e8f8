"""Plots the results of an experiment: a line per row, a dot per seed."""

import textwrap
from pathlib import Path
from typing import Any

from dynconv.lab import style
from dynconv.lab.experiment.run import DIVERGES
from dynconv.lab.experiment.table import finite_scores


def plot_results(results: dict[str, Any], output: Path) -> None:
    """Plot the results, with a tick at the mean and the published score at the right."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot as plt

    rows = results["rows"]
    with plt.rc_context():
        style.use()
        figure, ax = plt.subplots(figsize=(style.PHONE, 1.1 + 0.24 * len(rows)))
        for y, row in enumerate(rows):
            scores = finite_scores(row["scores"])
            color = style.COLORS.get(row["mixer"], "black")
            ax.plot(scores, [y] * len(scores), "o", ms=4, alpha=0.7, color=color)
            if scores:
                ax.plot(row["mean"], y, "|", ms=11, mew=1.5, color=color)
            if row["published"]:
                ax.text(1.02, y, row["published"], va="center", transform=ax.get_yaxis_transform())
        ax.set_yticks(range(len(rows)), [row_label(row) for row in rows])
        ax.set_ylim(len(rows) - 0.5, -0.5)  # the first row on top
        if any(row["published"] for row in rows):
            ax.text(1.02, 1.02, "published", va="bottom", style="italic", transform=ax.transAxes)
        ax.grid(axis="y", lw=0.3)
        ax.set_title(results["source"].removeprefix("dynconv, "))
        ax.set_xlabel(textwrap.fill(results["metric"], 60))
        style.save(figure, output, dpi=style.SHARP)
        plt.close(figure)


def row_label(row: dict[str, Any]) -> str:
    """Return the name of a row, and how many of its seeds diverge."""
    diverged = row["scores"].count(DIVERGES)
    name = style.NAMES.get(row["name"], row["name"])
    return f"{name} ({diverged} {DIVERGES})" if diverged else name
