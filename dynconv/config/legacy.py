"""Translates names and spellings of version 0.1."""

import re

from dynconv.config.experiment import Experiment
from dynconv.config.tree import Tree, find_stacks, size_of_mixers
from dynconv.models.mixers import SIZE_KEYS


def find_renamed(name: str, experiments: dict[str, Experiment]) -> str | None:
    """Return a hint at today's name of a table row that used to be a recipe of its own.

    BASE-tableN-ROW is now the row of this name, or of one that ends in -ROW, in the experiment
    whose base begins with BASE. The rows of two names are called by their laptop's heads, or sums.
    """
    old = re.fullmatch(r"(.+)-table(\d)-(.+)", name)
    for stem, experiment in experiments.items() if old else ():
        if stem.endswith(f"-table{old[2]}") and (experiment.base or "").startswith(old[1]):
            rows = [r.name for r in experiment.rows if f"-{r.name}".endswith(f"-{old[3]}")]
            return f"it is {stem}:{rows[0]} now" if rows else f"it is a row of {stem} now"
    return None


def split_kernels(tree: Tree) -> None:
    """Replace a stack's `kernel` by the width, reach or window that its mixers take it for."""
    for stack, _ in find_stacks(tree):
        if "kernel" in stack:
            kernel = stack.pop("kernel")
            if tree["model"].get("architecture") == "convs2s":
                stack["width"] = kernel
            else:
                stack |= {size: size_of_mixers(stack, size, kernel) for size in SIZE_KEYS}
