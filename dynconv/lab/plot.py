"""Plots the training curves of one or more runs."""

from pathlib import Path

from dynconv.lab import style
from dynconv.train.events import read_log

PANELS = [
    ("train", "loss", "training loss (nats/token)"),
    ("valid", "loss", "validation loss (nats/token)"),
    ("valid", "score", "validation score"),
    ("train", "lr", "learning rate"),
    ("train", "norm", "norm of the gradient"),
    ("train", "tokens_per_s", "target tokens per second"),
]


def plot_curves(runs: list[Path], output: Path) -> None:
    """Plot the quantities in PANELS over updates, one line per run; the suffix is the format."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(2, 3, figsize=(13, 5.5), sharex=True, layout="constrained")
    for run in runs:
        events = read_log(run)
        for ax, (kind, value, label) in zip(axes.flat, PANELS, strict=True):
            points = [(e["update"], e[value]) for e in events if e["event"] == kind and value in e]
            x, y = zip(*points, strict=True) if points else ((), ())
            ax.plot(x, y, marker="o" if len(x) < 20 else None, ms=3, label=run.name)
            ax.set_ylabel(label)
    for ax in axes.flat:
        ax.spines[["top", "right"]].set_visible(False)
    for ax in axes[1]:
        ax.set_xlabel("update")
    if len(runs) > 1:
        axes.flat[0].legend(frameon=False)
    style.save(figure, output, dpi=130)
    plt.close(figure)
