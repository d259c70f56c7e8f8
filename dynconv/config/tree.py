"""Merges nested mappings (trees) that become recipes once they are checked."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from dynconv.errors import UserError, quoted
from dynconv.yaml12 import MAX_DEPTH, parse_value

Tree = dict[str, Any]

DEFAULT_ARCHITECTURE: Final = "encoder-decoder"
"""the model of a recipe that names none"""


def parse_overrides(overrides: Sequence[str]) -> Tree:
    """Turn a list of key.sub=value into one tree."""
    merged: Tree = {}
    for override in overrides:
        key, equals, text = override.partition("=")
        if not (equals and all(key.split("."))):
            raise UserError(f"{quoted(override)}: write it as key=value, as train.lr=5e-4")
        if key.count(".") > MAX_DEPTH:
            raise UserError(f"unknown key {quoted(key)}")
        tree = parse_value(text, quoted(override))
        for part in reversed(key.split(".")):
            tree = {part: tree}
        merged = merge(merged, tree, one_model=True)
    return merged


def merge(base: Any, tree: Any, *, one_model: bool = False) -> Any:
    """Return `base` with the entries of `tree` added or replaced.

    A model of another architecture inherits nothing from its base, unless both describe one model.
    """
    if not isinstance(base, dict) or not isinstance(tree, dict):
        return tree
    architecture = tree.get("architecture")
    same = architecture in (None, base.get("architecture", DEFAULT_ARCHITECTURE))
    if not (same or one_model):
        return tree
    entries = {key: merge(base.get(key), value, one_model=one_model) for key, value in tree.items()}
    return base | entries


def keys_overlap(key: str, other: str) -> bool:
    """Return whether two keys name the same entry, or one of them a section with the other."""
    return f"{key}.".startswith(f"{other}.") or f"{other}.".startswith(f"{key}.")


def flatten(tree: Tree, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the entries of nested mappings as (key.sub, value)."""
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
