"""Draws figures of data/results for README and book: `python -m dynconv.teach.result_figures`."""

from statistics import mean
from typing import Any

from matplotlib import pyplot as plt

from dynconv.lab import ledger, style
from dynconv.lab.experiment.plot import plot_results
from dynconv.paths import data_dir
from dynconv.teach.checkout import run_tool


def draw_curves(numbers: dict[str, Any]) -> plt.Figure:
    """Draw the BLEU and loss of validations over updates and over minutes, a line per mixer."""
    figure, axes = plt.subplots(2, 2, figsize=(style.PHONE, 4.4), sharex="col", sharey="row")
    panels = {"valid_bleu": "BLEU, validation, greedy", "valid_loss": "loss, validation"}
    for (by_update, by_minute), (key, label) in zip(axes, panels.items(), strict=True):
        for mixer in [name for name in numbers if name in style.COLORS]:
            updates, values = numbers[mixer]["updates"], numbers[mixer][key]
            minutes = [numbers[mixer]["ms_per_update"] * n / 60_000 for n in updates]
            line = {"ms": 3, "color": style.COLORS[mixer], "label": style.NAMES.get(mixer, mixer)}
            by_update.plot(updates, values, "o-", **line)
            by_minute.plot(minutes, values, "o-", **line)
        by_update.set(ylabel=label, xlim=(0, None))
    axes[1, 0].set(xlabel="updates")
    axes[1, 1].set(xlabel="minutes on two cores", xlim=(0, None))
    handles, names = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside upper center", ncols=3, frameon=False)
    return figure


def draw_recall(numbers: dict[str, Any]) -> plt.Figure:
    """Draw the recalled share over the number of pairs: a panel per stack, a dot per seed."""
    stacks: dict[str, list[dict]] = {}
    for result in numbers["results"]:
        stacks.setdefault(result["stack"], []).append(result)
    figure, axes = plt.subplots(3, 3, figsize=(style.PHONE, 4.4), sharex=True, sharey=True)
    for ax, (stack, results) in zip(axes.flat, stacks.items(), strict=True):
        lower, upper = stack.split("+")
        color = style.COLORS[lower if lower == upper else "hybrid"]
        name, above = (style.NAMES.get(mixer, mixer) for mixer in (lower, upper))
        pairs = [result["pairs"] for result in results]
        ax.plot(pairs, [mean(result["accuracy"]) for result in results], color=color)
        for result in results:
            shares = result["accuracy"]
            ax.plot([result["pairs"]] * len(shares), shares, "o", ms=3, color=color, alpha=0.7)
        ax.set_title(name if lower == upper else f"{name},\nthen {above}")
    ax.set(ylim=(0, 1.05), xticks=sorted({result["pairs"] for result in numbers["results"]}))
    figure.supxlabel("pairs to remember", fontsize=9)
    figure.supylabel("values recalled", fontsize=9)
    return figure


def main() -> None:
    """Draw learning-curves.png, recall.png, and again each experiment's plot that is there."""
    plt.switch_backend("agg")
    style.use()
    for name, draw in (("learning-curves", draw_curves), ("recall", draw_recall)):
        figure = draw(ledger.read(name)["numbers"])
        style.save(figure, data_dir() / f"results/{name}.png", dpi=style.SHARP)
    for picture in (data_dir() / "results").glob("experiment-*.png"):
        plot_results(ledger.read(picture.stem)["numbers"], picture)


if __name__ == "__main__":
    run_tool(main)
