"""Translates names and spellings of version 0.1, and settings that were renamed since."""

from dynconv.config.sizes import drop_untaken_size, find_stacks
from dynconv.config.tree import Tree
from dynconv.models.mixers import SIZE_KEYS

RENAMED = {
    "data": {"max_tokens": "max_length", "block": "block_size"},
    "model": {"state": "state_size", "bands": "band_widths", "factor": "div_value"},
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


def split_kernels(tree: Tree) -> None:
    """Replace the entry `kernel` of a stack by the size that its mixers take (`SIZE_KEYS`)."""
    for stack, _ in find_stacks(tree):
        if "kernel" in stack:
            kernel = stack.pop("kernel")
            if tree["model"].get("architecture") == "convs2s":
                stack["kernel_size"] = kernel
            else:
                stack |= {size: drop_untaken_size(stack, size, kernel) for size in SIZE_KEYS}
