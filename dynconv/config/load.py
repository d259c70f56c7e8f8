"""Loads recipes and experiments from YAML, and checks them against their dataclasses.

Overlays are mappings that are merged in order: first the recipe that `base` names, then the
recipe's own entries, then the `key=value` overrides of a command. A later overlay replaces entries
of an earlier one (`merge`). Only the result is checked (`resolve`).
"""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import asdict, fields
from os.path import isfile  # false, where Path.is_file raises an error, for a name that is too long
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import TypeAdapter

from dynconv.config.experiment import Experiment, ExperimentRow
from dynconv.config.legacy import find_renamed, rename_settings, split_kernels
from dynconv.config.model import MODELS, ModelConfig
from dynconv.config.recipe import PublishedScore, Recipe
from dynconv.config.schema import validate
from dynconv.config.tree import (
    Tree,
    find_stacks,
    flatten,
    merge,
    parse_overrides,
    size_of_mixers,
)
from dynconv.config.unused import find_unused
from dynconv.config.yaml12 import dump_yaml, read_yaml
from dynconv.errors import UserError, did_you_mean, nearest, quoted
from dynconv.models.mixers import SIZE_KEYS
from dynconv.paths import PACKAGE

RECIPES = PACKAGE / "recipes"
EXPERIMENTS = PACKAGE / "experiments"
MAX_BASES = 50
"""maximum length of a chain of recipes, each the base of the next"""


def shipped_recipes() -> dict[str, Path]:
    """Return the files of the shipped recipes by name."""
    return {file.stem: file for file in sorted(RECIPES.glob("*.yaml"))}


def shipped_experiments() -> dict[str, Path]:
    """Return the files of the shipped experiments by name."""
    return {file.stem: file for file in sorted(EXPERIMENTS.glob("*.yaml"))}


def find_recipe(name: str) -> Path:
    """Return the file of a recipe; for EXPERIMENT:ROW, the file of the experiment.

    name  a shipped recipe's name, EXPERIMENT:ROW, or a path
    """
    shipped = shipped_recipes()
    if path := find_file(name, shipped):
        return path
    experiment, colon, row = name.partition(":")
    if colon:
        path = find_experiment(experiment)
        load_experiment(path).find_row(row)
        return path
    hint = find_renamed(name, load_experiments()) or did_you_mean(name, shipped)
    otherwise = "dynconv train --list shows the shipped ones"
    raise UserError(f"no recipe {quoted(name)}: not shipped, and no such file; {hint or otherwise}")


def run_name(recipe: str) -> str:
    """Return a name for the recipe's run directory: RECIPE or EXPERIMENT-ROW."""
    row = "" if isfile(recipe) else recipe.partition(":")[2]
    return find_recipe(recipe).stem + (f"-{row}" if row else "")


def find_experiment(name: str) -> Path:
    """Return the file of an experiment, given a shipped name or a path."""
    shipped = shipped_experiments()
    if path := find_file(name, shipped):
        return path
    hint = nearest(name, shipped, "shipped are")
    raise UserError(f"no experiment {quoted(name)}: not shipped, and no such file; {hint}")


def find_file(name: str, shipped: dict[str, Path]) -> Path | None:
    """Return the file of a shipped name, or else of a path; None if there is neither.

    A shipped name wins over a file of that name in the working directory: write ./NAME for yours.
    """
    return shipped.get(name) or (Path(name) if isfile(name) else None)


def load_recipe(recipe: str | Path, overrides: Sequence[str] = ()) -> Recipe:
    """Read and check a recipe.

    recipe     a name or path, as `find_recipe` accepts
    overrides  key.sub=value; if the value is a mapping, it replaces only the entries in it

    Raises UserError with one line that names the key, its value and what would be valid.
    """
    base, own = recipe_overlays(recipe)
    return resolve(Overlays(base, [*own, parse_overrides(overrides)]), str(recipe))


def load_row(
    experiment: Experiment,
    row: ExperimentRow,
    overrides: Sequence[str] = (),
    *,
    laptop: bool = True,
) -> Recipe:
    """Return the recipe of an experiment's row, at laptop size or at the paper's.

    The overrides apply to all rows, so one without effect in this row is not an error. Raises
    UserError that names the row.
    """
    try:
        return resolve(row_overlays(experiment, row, laptop), "its recipe", overrides)
    except UserError as error:
        raise UserError(f"row {row.name}: {error}") from None


def load_experiment(path: Path) -> Experiment:
    """Read and check an experiment. Raises UserError with one line that names key and value."""
    return validate(Experiment, read_mapping(path, "an experiment", Experiment), str(path))


def load_experiments() -> dict[str, Experiment]:
    """Read the shipped experiments, by name."""
    return {name: load_experiment(path) for name, path in shipped_experiments().items()}


def read_mapping(path: Path, what: str, schema: type) -> Tree:
    """Read a YAML file. Raises UserError unless it is a mapping."""
    tree = read_yaml(path) or {}
    if not isinstance(tree, dict):
        keys = ", ".join(field.name for field in fields(schema))
        raise UserError(f"{path}: {what} is a mapping with {keys}")
    return tree


# overlays ----------------------------------------------------------------------------------------


class Overlays(NamedTuple):
    """Lists the trees that make up a recipe, in the order in which they are merged."""

    base: list[Tree]
    """those of the recipes and experiments that it builds on"""
    own: list[Tree]
    """its own: an entry of theirs that has no effect is an error"""


def recipe_overlays(recipe: str | Path, seen: tuple[str, ...] = ()) -> Overlays:
    """Return the overlays of a recipe, or of an experiment's row.

    seen  the recipes and rows that build on it
    """
    path = recipe if isinstance(recipe, Path) else find_recipe(recipe)
    row = "" if isfile(recipe) else str(recipe).partition(":")[2]
    name = f"{path.resolve()}:{row}"
    if name in seen:
        raise UserError(f"{path}: its base leads back to it")
    if len(seen) == MAX_BASES:
        raise UserError(f"{path}: more than {MAX_BASES} recipes build on each other")
    seen = (*seen, name)
    if row:
        experiment = load_experiment(path)
        return row_overlays(experiment, experiment.find_row(row), laptop=False, seen=seen)
    tree = read_mapping(path, "a recipe", Recipe)
    if "base" not in tree:
        # a run's recipe.yaml states every entry, even one without effect
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
    base, own = recipe_overlays(recipe, seen)
    return [{k: v for k, v in tree.items() if k != "published"} for tree in base + own]


def row_overlays(
    experiment: Experiment, row: ExperimentRow, laptop: bool, seen: tuple[str, ...] = ()
) -> Overlays:
    """Return the overlays of an experiment's row, at laptop size, if it has one, or the paper's."""
    if laptop and experiment.laptop is not None:
        base = base_overlays(experiment.laptop.base, seen)
        return Overlays([*base, experiment.laptop.changes], [row.changes, row.laptop])
    if row.recipe is not None:
        base, own = recipe_overlays(row.recipe, seen)
        return Overlays([*base, *own, experiment.changes], [row.changes])
    assert experiment.base is not None  # Experiment refuses a row that has neither
    base = [*base_overlays(experiment.base, seen), experiment.changes]
    if row.published is not None:
        name, metric = row.row or row.name, experiment.metric
        printed = PublishedScore(experiment.source, name, row.published, metric, row.parameters)
        base.append({"published": [asdict(printed)]})
    return Overlays(base, [row.changes])


def merge_overlays(overlays: Sequence[Tree]) -> Tree:
    """Merge overlays in order into one tree."""
    tree: Tree = {}
    for overlay in overlays:
        tree = merge(tree, deepcopy(overlay))
        split_kernels(tree)
    return tree


# checks ------------------------------------------------------------------------------------------


def resolve(overlays: Overlays, where: str, shared: Sequence[str] = ()) -> Recipe:
    """Merge overlays and check the result.

    where   begins an error message
    shared  overrides for several recipes, which may have no effect in this one

    An inherited kernel_size, reach or window is dropped if no mixer of the stack uses it: for
    example, when attention replaces a convolution.
    """
    overlays = Overlays(*([rename_settings(tree) for tree in trees] for trees in overlays))
    overrides = rename_settings(parse_overrides(shared))
    tree = merge_overlays([*overlays.base, *overlays.own, overrides])
    keys = {key for overlay in overlays.own for key, _ in flatten(overlay)}
    for stack, key in find_stacks(tree):
        for size in SIZE_KEYS:
            own = any(f"{k}.".startswith(f"{key}.{size}.") for k in keys)
            if size in stack and not own and "mixer" in stack:
                stack[size] = size_of_mixers(stack, size, stack[size])
    recipe = validate_recipe(tree, where)
    entries, defaults = dict(flatten(asdict(recipe))), default_entries(recipe)
    for key, reason in find_unused(recipe).items():
        if key in keys and entries[key] != defaults[key]:
            raise UserError(f"{where}: {key} {entries[key]} has no effect: {reason}; leave it out")
    return recipe


def default_entries(recipe: Recipe) -> dict[str, Any]:
    """Return the default of every entry, by its key."""
    sections = ("data", "model", "train", "decode")
    return dict(flatten({name: asdict(type(getattr(recipe, name))()) for name in sections}))


def validate_recipe(tree: Tree, where: str) -> Recipe:
    """Turn a tree into a recipe and check every entry; `where` begins an error message."""
    schema = {field.name: field.type for field in fields(Recipe)}
    schema["model"] = find_model(tree.get("model"), where)
    sections = {
        name: validate(schema[name], value, where, name) if name in schema else value
        for name, value in tree.items()
    }
    return validate(Recipe, sections, where)


def find_model(tree: Any, where: str) -> type:
    """Return the class of the section `model`, chosen by `architecture`."""
    name = tree.get("architecture") if isinstance(tree, dict) else None
    if name is None:
        return ModelConfig
    if not isinstance(name, str) or name not in MODELS:
        hint = nearest(str(name), MODELS, "there are")
        raise UserError(f"{where}: model.architecture {quoted(name)} is not known; {hint}")
    return MODELS[name]


# writing and comparing ---------------------------------------------------------------------------


def dump_recipe(recipe: Recipe) -> str:
    """Return the recipe as YAML that states every entry."""
    # mode="json" turns tuples into lists, because YAML has no tuples
    return dump_yaml(TypeAdapter(Recipe).dump_python(recipe, mode="json"))


MAY_CHANGE = ("published", "decode.", "profile", "train.accumulate", "train.timeout")
"""entries that may change when a run is resumed; `accumulate` only with the number of processes"""


def differences(recipe: Recipe, other: Recipe, free: tuple[str, ...] = MAY_CHANGE) -> list[str]:
    """Return the entries that differ, as `train.lr 0.001, not 0.0005`.

    free  beginnings of keys that are not compared
    """
    a, b = (dict(flatten(asdict(each))) for each in (recipe, other))
    both = ((k, a.get(k), b.get(k)) for k in a | b if not k.startswith(free))
    return [f"{k} {here}, not {there}" for k, here, there in both if here != there]
