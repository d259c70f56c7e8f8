"""Loads recipes and experiments; also writes and compares recipes.

A recipe is merged from trees, its overlays. They are, in order: the recipe that `base` names, the
recipe's own entries, and the `key=value` overrides of a command. A later overlay replaces entries
of an earlier one (`merge`).
"""

from collections.abc import Collection, Sequence
from copy import deepcopy
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import TypeAdapter

from dynconv.config.experiment import Experiment, ExperimentRow
from dynconv.config.find import (
    RECIPES,
    require_recipe,
    shipped_experiments,
    shipped_recipes,
    split_row,
)
from dynconv.config.legacy import rename_settings, split_kernels, split_normalize
from dynconv.config.model import MODEL_CONFIGS, AnyModelConfig
from dynconv.config.recipe import PublishedScore, Recipe
from dynconv.config.sizes import drop_inherited_sizes
from dynconv.config.tree import DEFAULT_ARCHITECTURE, Tree, flatten, merge, parse_overrides
from dynconv.config.unused import find_unused
from dynconv.errors import UserError, name_hint, quoted, shorten
from dynconv.schema import validated
from dynconv.yaml12 import as_override, dump_yaml, read_yaml

MAX_BASES = 50
"""maximum length of a chain of recipes, each the base of the next"""


class Overlays(NamedTuple):
    """The trees that make up a recipe, in the order in which they are merged."""

    inherited: list[Tree]
    """trees of base recipes and experiments"""
    stated: list[Tree]
    """trees that the recipe adds itself; an entry in them that has no effect is an error,
    unless it states the default"""


def load_recipe(recipe: str | Path, overrides: Sequence[str] = ()) -> Recipe:
    """Read and check a recipe.

    recipe     a name or path, as `require_recipe` accepts
    overrides  key.sub=value; if the value is a mapping, it replaces only the entries in it

    Raises UserError with one line that names the key, its value and what would be valid.
    """
    inherited, stated = recipe_overlays(recipe)
    return resolve(Overlays(inherited, [*stated, parse_overrides(overrides)]), str(recipe))


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
    tree = rename_settings(read_mapping(path, "an experiment", Experiment), "experiment")
    return validated(Experiment, tree, str(path))


def load_experiments() -> dict[str, Experiment]:
    """Read the shipped experiments, by name."""
    return {name: load_experiment(path) for name, path in shipped_experiments().items()}


def recipe_names() -> list[str]:
    """Return the names that `dynconv train` knows: recipes, and EXPERIMENT:ROW.

    A row that only names a recipe is not listed again.
    """
    rows = [
        f"{name}:{row.name}"
        for name, experiment in load_experiments().items()
        for row in experiment.rows
        if row.recipe is None
    ]
    return [*shipped_recipes(), *rows]


def read_mapping(path: Path, what: str, schema: type) -> Tree:
    """Read a YAML file. Raises UserError unless it is a mapping."""
    tree = read_yaml(path) or {}
    if not isinstance(tree, dict):
        keys = ", ".join(field.name for field in fields(schema))
        raise UserError(f"{path}: {what} is a mapping with {keys}")
    return tree


def read_comment(path: Path) -> str:
    """Return the comment at the head of a YAML file as one line."""
    text = path.read_text(encoding="utf-8").splitlines()
    end = next(i for i, line in enumerate(text) if not line.startswith("#"))
    return " ".join(" ".join(line.removeprefix("#") for line in text[:end]).split())


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
            row=row.printed_name or row.name,
            value=row.published,
            metric_in_words=experiment.metric_in_words,
            parameters=row.parameters,
        )
        base.append({"published": [asdict(printed)]})
    return Overlays(base, [row.changes])


def resolve(overlays: Overlays, where: str, shared: Sequence[str] = ()) -> Recipe:
    """Merge overlays and check the result.

    where   begins an error message
    shared  overrides for several recipes, which may have no effect in this one
    """
    overlays = Overlays(*([rename_settings(tree) for tree in trees] for trees in overlays))
    overrides = rename_settings(parse_overrides(shared))
    tree = merge_overlays([*overlays.inherited, *overlays.stated, overrides])
    stated_keys = {key for overlay in overlays.stated for key, _ in flatten(overlay)}
    drop_inherited_sizes(tree, stated_keys)
    recipe = split_normalize(build_recipe(tree, where), tree)
    check_effects(recipe, stated_keys, where)
    return recipe


def merge_overlays(overlays: Sequence[Tree]) -> Tree:
    """Merge overlays in order into one tree."""
    tree: Tree = {}
    for overlay in overlays:
        tree = merge(tree, deepcopy(overlay))
        split_kernels(tree)
    return tree


def build_recipe(tree: Tree, where: str) -> Recipe:
    """Turn a tree into a recipe and check every entry; `where` begins an error message."""
    schema = {field.name: field.type for field in fields(Recipe)}
    schema["model"] = model = model_class(tree.get("model"), where)
    tree = merge(model.recipe_defaults, tree)
    sections = {
        name: validated(schema[name], value, where, name) if name in schema else value
        for name, value in tree.items()
    }
    return validated(Recipe, sections, where)


def model_class(tree: Any, where: str) -> type[AnyModelConfig]:
    """Return the class of the section `model`, chosen by `architecture`."""
    name = tree.get("architecture") if isinstance(tree, dict) else None
    if name is None:
        return MODEL_CONFIGS[DEFAULT_ARCHITECTURE]
    if not isinstance(name, str) or name not in MODEL_CONFIGS:
        hint = name_hint(str(name), MODEL_CONFIGS, "there are")
        raise UserError(f"{where}: model.architecture {quoted(name)} is not known; {hint}")
    return MODEL_CONFIGS[name]


def check_effects(recipe: Recipe, stated_keys: set[str], where: str) -> None:
    """Raise UserError for a stated entry without effect; `where` begins its message."""
    entries = dict(flatten(asdict(recipe)))
    defaults = default_entries(recipe)
    for key, reason in find_unused(recipe).items():
        if key in stated_keys and entries[key] != defaults[key]:
            value = shorten(as_override(entries[key]))
            raise UserError(f"{where}: {key} {value} has no effect: {reason}; leave it out")


def default_entries(recipe: Recipe) -> dict[str, Any]:
    """Return the default of every entry, by its key."""
    sections = ("data", "model", "train", "decode")
    return dict(flatten({name: asdict(type(getattr(recipe, name))()) for name in sections}))


def override_keys(overrides: Sequence[str]) -> set[str]:
    """Return the key of each entry that overrides replace, also of those inside a mapping.

    Both `train.lr=0.001` and `train={lr: 0.001}` replace train.lr.
    """
    return {key for key, _ in flatten(rename_settings(parse_overrides(overrides)))}


def refuse_overrides(overrides: Sequence[str], keys: Collection[str], reason: str) -> None:
    """Raise UserError, `KEY reason`, if an override replaces an entry that a command decides."""
    for key in sorted(override_keys(overrides).intersection(keys)):
        raise UserError(f"{key} {reason}")


def dump_recipe(recipe: Recipe) -> str:
    """Return the recipe as YAML that states every entry."""
    # mode="json" turns tuples into lists, because YAML has no tuples.
    return dump_yaml(TypeAdapter(Recipe).dump_python(recipe, mode="json"))


def list_differences(recipe: Recipe, other: Recipe, ignored: tuple[str, ...] = ()) -> list[str]:
    """Return the entries that differ, as `train.lr 0.001, not 0.0005`.

    ignored  beginnings of keys that are not compared
    """
    a, b = (dict(flatten(asdict(each))) for each in (recipe, other))
    both = ((k, a.get(k), b.get(k)) for k in a | b if not k.startswith(ignored))
    return [
        f"{k} {as_override(here)}, not {as_override(there)}"
        for k, here, there in both
        if here != there
    ]
