"""Loads recipes: merges their overlays, checks the result, and writes and compares recipes."""

from collections.abc import Collection, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from dynconv.config.experiment import Experiment, ExperimentRow
from dynconv.config.legacy import rename_settings, split_normalize
from dynconv.config.model import MODEL_CONFIGS, LanguageModelConfig, Seq2SeqConfig
from dynconv.config.overlays import Overlays, merge_overlays, recipe_overlays, row_overlays
from dynconv.config.recipe import LANGUAGE_DEFAULTS, Recipe
from dynconv.config.sizes import drop_inherited_sizes
from dynconv.config.tree import Tree, flatten, merge, parse_overrides
from dynconv.config.unused import find_unused
from dynconv.errors import UserError, name_hint, quoted, shorten
from dynconv.schema import validated
from dynconv.yaml12 import as_override, dump_yaml


def load_recipe(recipe: str | Path, overrides: Sequence[str] = ()) -> Recipe:
    """Read and check a recipe.

    recipe     a name or path, as `require_recipe` accepts
    overrides  key.sub=value; if the value is a mapping, it replaces only the entries in it

    Raises UserError with one line that names the key, its value and what would be valid.
    """
    inherited, stated = recipe_overlays(recipe)
    return resolve(Overlays(inherited, [*stated, parse_overrides(overrides)]), str(recipe))


def override_keys(overrides: Sequence[str]) -> set[str]:
    """Return the key of each entry that overrides replace, also of those inside a mapping.

    Both `train.lr=0.001` and `train={lr: 0.001}` replace train.lr.
    """
    return {key for key, _ in flatten(rename_settings(parse_overrides(overrides)))}


def refuse_overrides(overrides: Sequence[str], keys: Collection[str], reason: str) -> None:
    """Raise UserError, `KEY reason`, if an override replaces an entry that a command decides."""
    for key in sorted(override_keys(overrides).intersection(keys)):
        raise UserError(f"{key} {reason}")


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


def build_recipe(tree: Tree, where: str) -> Recipe:
    """Turn a tree into a recipe and check every entry; `where` begins an error message."""
    schema = {field.name: field.type for field in fields(Recipe)}
    schema["model"] = model_class(tree.get("model"), where)
    if schema["model"] is LanguageModelConfig:
        tree = merge(LANGUAGE_DEFAULTS, tree)
    sections = {
        name: validated(schema[name], value, where, name) if name in schema else value
        for name, value in tree.items()
    }
    return validated(Recipe, sections, where)


def model_class(tree: Any, where: str) -> type:
    """Return the class of the section `model`, chosen by `architecture`."""
    name = tree.get("architecture") if isinstance(tree, dict) else None
    if name is None:
        return Seq2SeqConfig
    if not isinstance(name, str) or name not in MODEL_CONFIGS:
        hint = name_hint(str(name), MODEL_CONFIGS, "there are")
        raise UserError(f"{where}: model.architecture {quoted(name)} is not known; {hint}")
    return MODEL_CONFIGS[name]


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
