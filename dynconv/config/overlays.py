"""Collects the overlays of a recipe: the trees that are merged into it.

They are, in order: the recipe that `base` names, the recipe's own entries, and the `key=value`
overrides of a command. A later overlay replaces entries of an earlier one (`merge`).
"""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import asdict, fields
from pathlib import Path
from typing import NamedTuple

from dynconv.config.experiment import Experiment, ExperimentRow
from dynconv.config.find import (
    RECIPES,
    load_experiment,
    read_mapping,
    require_recipe,
    split_row,
)
from dynconv.config.legacy import split_kernels
from dynconv.config.recipe import PublishedScore, Recipe
from dynconv.config.tree import Tree, merge
from dynconv.errors import UserError, quoted

MAX_BASES = 50
"""maximum length of a chain of recipes, each the base of the next"""


class Overlays(NamedTuple):
    """The trees that make up a recipe, in the order in which they are merged."""

    inherited: list[Tree]
    """trees of base recipes and experiments"""
    stated: list[Tree]
    """trees that the recipe adds itself; an entry in them that has no effect is an error,
    unless it states the default"""


def recipe_overlays(recipe: str | Path, seen: tuple[str, ...] = ()) -> Overlays:
    """Return the overlays of a recipe, or of an experiment's row.

    seen  the recipes and rows that build on it
    """
    path = recipe if isinstance(recipe, Path) else require_recipe(recipe)
    row = split_row(str(recipe))[1]
    name = f"{path.resolve()}:{row}"
    if name in seen:
        raise UserError(f"{path}: its base leads back to it: name another base")
    if len(seen) == MAX_BASES:
        raise UserError(f"{path}: more than {MAX_BASES} recipes build on each other: merge some")
    seen = (*seen, name)
    if row is not None:
        experiment = load_experiment(path)
        return row_overlays(experiment, experiment.require_row(row), laptop=False, seen=seen)
    tree = read_mapping(path, "a recipe", Recipe)
    if "base" not in tree:
        # A run's recipe.yaml states every entry, even one without effect.
        resolved = tree.keys() >= {field.name for field in fields(Recipe)}
        shipped = path.parent == RECIPES
        return Overlays([tree], []) if resolved or shipped else Overlays([], [tree])
    tree = dict(tree)
    base = tree.pop("base")
    if not isinstance(base, str):
        raise UserError(f"{path}: base {quoted(base)} is not the name of a recipe")
    sibling = (path.parent / f"{base}.yaml").resolve()
    file_or_name = sibling if sibling.is_file() and sibling != path.resolve() else base
    return Overlays(base_overlays(file_or_name, seen), [tree])


def base_overlays(recipe: str | Path, seen: tuple[str, ...] = ()) -> list[Tree]:
    """Return all overlays of a recipe that others build on, without its published scores."""
    inherited, stated = recipe_overlays(recipe, seen)
    return [{k: v for k, v in tree.items() if k != "published"} for tree in inherited + stated]


def row_overlays(
    experiment: Experiment, row: ExperimentRow, laptop: bool, seen: tuple[str, ...] = ()
) -> Overlays:
    """Return the overlays of an experiment's row, at laptop size, if it has one, or the paper's."""
    if laptop and experiment.laptop is not None:
        base = base_overlays(experiment.laptop.base, seen)
        return Overlays([*base, experiment.laptop.changes], [row.changes, row.laptop])
    if row.recipe is not None:
        inherited, stated = recipe_overlays(row.recipe, seen)
        return Overlays([*inherited, *stated, experiment.changes], [row.changes])
    assert experiment.base is not None  # Experiment refuses a row that has neither
    base = [*base_overlays(experiment.base, seen), experiment.changes]
    if row.published is not None:
        printed = PublishedScore(
            source=experiment.source,
            row=row.row or row.name,
            value=row.published,
            metric_in_words=experiment.metric_in_words,
            parameters=row.parameters,
        )
        base.append({"published": [asdict(printed)]})
    return Overlays(base, [row.changes])


def merge_overlays(overlays: Sequence[Tree]) -> Tree:
    """Merge overlays in order into one tree."""
    tree: Tree = {}
    for overlay in overlays:
        tree = merge(tree, deepcopy(overlay))
        split_kernels(tree)
    return tree
