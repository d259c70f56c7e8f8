"""Translates names and spellings of version 0.1, and settings that were renamed since."""

import re

from dynconv.config.experiment import Experiment
from dynconv.config.sizes import find_stacks, size_of_mixers
from dynconv.config.tree import Tree
from dynconv.models.mixers import SIZE_KEYS

RENAMED = {
    "data": {"max_tokens": "max_length", "block": "block_size"},
    "model": {"state": "state_size"},
    "model.encoder": {"width": "kernel_size"},
    "model.decoder": {"width": "kernel_size"},
    "train": {
        "average": "average_checkpoints",
        "clip": "clip_norm",
        "keep": "keep_checkpoints",
        "skip": "max_skipped",
    },
    "decode": {"context": "context_window", "no_repeat": "no_repeat_ngram_size"},
}
"""today's names of settings, keyed by section and old name"""


def rename_settings(tree: Tree, section: str = "") -> Tree:
    """Return a section with its settings renamed, except where it already has the new name."""
    names = RENAMED.get(section, {})
    renamed = {old: new for old, new in names.items() if new not in tree}
    prefix = f"{section}." if section else ""
    return {
        renamed.get(key, key): rename_settings(value, f"{prefix}{key}")
        if isinstance(value, dict)
        else value
        for key, value in tree.items()
    }


def find_renamed(name: str, experiments: dict[str, Experiment]) -> str | None:
    """Return a hint for a table row that was a separate recipe in version 0.1, or None.

    BASE-tableN-ROW is now a row called ROW, or ending in -ROW, of the experiment with table N whose
    base begins with BASE. A few rows were renamed; for these the hint names only the experiment.
    """
    old = re.fullmatch(r"(.+)-table(\d)-(.+)", name)
    if old is None:
        return None
    for stem, experiment in experiments.items():
        if stem.endswith(f"-table{old[2]}") and (experiment.base or "").startswith(old[1]):
            rows = [r.name for r in experiment.rows if f"-{r.name}".endswith(f"-{old[3]}")]
            return f"it is {stem}:{rows[0]} now" if rows else f"it is a row of {stem} now"
    return None


def split_kernels(tree: Tree) -> None:
    """Replace the entry `kernel` of a stack by the size that its mixers take (`SIZE_KEYS`)."""
    for stack, _ in find_stacks(tree):
        if "kernel" in stack:
            kernel = stack.pop("kernel")
            if tree["model"].get("architecture") == "convs2s":
                stack["kernel_size"] = kernel
            else:
                stack |= {size: size_of_mixers(stack, size, kernel) for size in SIZE_KEYS}
