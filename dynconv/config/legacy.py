"""Translates names and spellings of version 0.1, and settings that changed since."""

from dataclasses import replace
from typing import Any

from dynconv.config.model import MixerModelConfig
from dynconv.config.recipe import Recipe
from dynconv.config.sizes import drop_untaken_size, find_stacks
from dynconv.config.tree import Tree
from dynconv.models.mixers import SIZE_KEYS

RENAMED = {
    "data": {
        "max_tokens": "max_example_tokens",
        "max_length": "max_example_tokens",
        "max_source": "max_source_tokens",
        "block": "block_size",
    },
    "model": {
        "state": "state_size",
        "bands": "band_widths",
        "factor": "div_value",
        "divide_by_reach": "divide_by_max_length",
    },
    "model.encoder": {"width": "kernel_size"},
    "model.decoder": {"width": "kernel_size"},
    "train": {
        "average": "average_checkpoints",
        "clip": "clip_norm",
        "keep": "keep_checkpoints",
        "skip": "max_skipped",
        "validate_every": "checkpoint_every",
    },
    "decode": {
        "context": "context_window",
        "no_repeat": "no_repeat_ngram_size",
        "min_length": "min_tokens",
        "max_length": "max_tokens",
    },
    "published": {"metric": "metric_in_words"},
    "experiment": {"metric": "metric_in_words"},
    "experiment.rows": {"row": "printed_name"},
    "experiment.laptop": {"metric": "metric_in_words"},
}
"""today's names of settings, keyed by section and old name"""
RENAMED_VALUES = {"train.optimizer": {"adam": "adamw"}}
"""today's names of values, keyed by setting and old name"""
WITHOUT_EOS = "data.max_source", "decode.min_length"
"""old settings that counted tokens without <eos>; the new ones count it"""


def rename_settings(tree: Any, section: str = "") -> Any:
    """Return a section, or a list of them, with the settings renamed that lack their new name."""
    if isinstance(tree, list):
        return [rename_settings(each, section) for each in tree]
    if not isinstance(tree, dict):
        return tree
    names = RENAMED.get(section, {})
    renamed = {old: new for old, new in names.items() if new not in tree}
    prefix = f"{section}." if section else ""
    today = {}
    for key, value in tree.items():
        full_key = f"{prefix}{key}"
        today[renamed.get(key, key)] = update_value(rename_settings(value, full_key), full_key)
    return today


def update_value(value: Any, key: str) -> Any:
    """Return today's name of a value, and an old number of tokens without <eos> plus one."""
    if key in RENAMED_VALUES and isinstance(value, str):
        return RENAMED_VALUES[key].get(value, value)
    return value + 1 if key in WITHOUT_EOS and type(value) is int else value


def split_kernels(tree: Tree) -> None:
    """Replace the entry `kernel` of a stack by the size that its mixers take (`SIZE_KEYS`)."""
    for stack, _ in find_stacks(tree):
        if "kernel" in stack:
            kernel = stack.pop("kernel")
            if tree["model"].get("architecture") == "convs2s":
                stack["kernel_size"] = kernel
            else:
                stack |= {size: drop_untaken_size(stack, size, kernel) for size in SIZE_KEYS}


def split_normalize(recipe: Recipe, tree: Tree) -> Recipe:
    """Set `divide_by_max_length: false` where version 0.1 said so by `normalize: none`.

    It did where a tree does not state `divide_by_max_length`.
    """
    model = recipe.model
    if (
        isinstance(model, MixerModelConfig)
        and model.normalize == "none"
        and "divide_by_max_length" in model.used_options
        and "divide_by_max_length" not in tree["model"]
    ):
        normalize = model.normalize if "normalize" in model.used_options else type(model).normalize
        model = replace(model, divide_by_max_length=False, normalize=normalize)
        return replace(recipe, model=model)
    return recipe
