"""Merges nested mappings (trees) that become recipes once they are checked."""

from collections.abc import Iterator, Sequence
from typing import Any

from dynconv.config.model import ModelConfig
from dynconv.config.stack import StackConfig
from dynconv.config.yaml12 import MAX_DEPTH, parse_value
from dynconv.errors import UserError, quoted
from dynconv.models.mixers import MIXERS

Tree = dict[str, Any]


def parse_overrides(overrides: Sequence[str]) -> Tree:
    """Turn a list of key.sub=value into one tree."""
    merged: Tree = {}
    for override in overrides:
        key, equals, text = override.partition("=")
        if not (key and equals):
            raise UserError(f"{quoted(override)}: write it as key=value, as train.lr=5e-4")
        if key.count(".") > MAX_DEPTH:
            raise UserError(f"unknown key {quoted(key)}")
        tree = parse_value(text, quoted(override))
        for part in reversed(key.split(".")):
            tree = {part: tree}
        merged = merge(merged, tree)
    return merged


def merge(base: Any, tree: Any) -> Any:
    """Return `base` with the entries of `tree` added or replaced.

    A model of another architecture inherits nothing from its base.
    """
    if not isinstance(base, dict) or not isinstance(tree, dict):
        return tree
    if tree.get("architecture") not in (None, base.get("architecture", ModelConfig.architecture)):
        return tree
    return base | {key: merge(base.get(key), value) for key, value in tree.items()}


def flatten(tree: Tree, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the entries of nested mappings as (key.sub, value)."""
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def find_stacks(tree: Tree) -> list[tuple[Tree, str]]:
    """Return the encoder's and the decoder's trees, each with its key in the recipe."""
    model = tree.get("model")
    if not isinstance(model, dict):
        return []
    sides = (side for side in ("encoder", "decoder") if isinstance(model.get(side), dict))
    return [(model[side], f"model.{side}") for side in sides]


def size_of_mixers(stack: Tree, size: str, value: Any) -> Any:
    """Return `value`, one size or one per layer, with None for layers whose mixer has none.

    size  kernel_size, reach or window
    """

    def takes(mixer: Any) -> bool:
        return isinstance(mixer, str) and mixer in MIXERS and MIXERS[mixer].size_key == size

    mixers = stack.get("mixer", StackConfig.mixer)
    if not isinstance(mixers, list):
        return value if takes(mixers) else None
    if not isinstance(value, list):
        return value if any(map(takes, mixers)) else None
    if len(value) != len(mixers):
        return value  # StackConfig raises the error
    sizes = [v if takes(mixer) else None for v, mixer in zip(value, mixers, strict=True)]
    return sizes if any(v is not None for v in sizes) else None
