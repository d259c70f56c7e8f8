"""Draws figures of data/results for README and book: `python -m dynconv.teach.evidence`."""

from typing import Any

from matplotlib import pyplot as plt

from dynconv.lab import ledger, style
from dynconv.paths import data_dir
from dynconv.teach.checkout import run_tool


def draw_curves(numbers: dict[str, Any]) -> plt.Figure:
    """Draw the validation's BLEU and loss over the updates, with one line per mixer."""
    figure, axes = plt.subplots(1, 2, figsize=(7.0, 2.6), sharex=True)
    panels = {"valid_bleu": "BLEU, validation, greedy", "valid_loss": "loss, validation"}
    for ax, (key, label) in zip(axes, panels.items(), strict=True):
        for mixer in [name for name in numbers if name in style.COLORS]:
            updates, values = numbers[mixer]["updates"], numbers[mixer][key]
            ax.plot(updates, values, "o-", ms=3, color=style.COLORS[mixer], label=mixer)
        ax.set(xlabel="updates", ylabel=label, xlim=(0, None))
    axes[0].legend(frameon=False, loc="lower right")
    return figure


def main() -> None:
    """Draw learning-curves.png."""
    plt.switch_backend("agg")
    style.use()
    figure = draw_curves(ledger.read("learning-curves")["numbers"])
    style.save(figure, data_dir() / "results/learning-curves.png")


if __name__ == "__main__":
    run_tool(main)
