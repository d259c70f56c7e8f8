"""Recipes: YAML checked against the dataclasses of `dynconv.config`."""

import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from dynconv.config import MODELS, ModelConfig, Recipe
from dynconv.config.files import read_yaml
from dynconv.errors import UserError, nearest

SHIPPED = Path(__file__).parents[1] / "recipes"


def find(name: str) -> Path:
    """The file of a recipe: a shipped name, or a path."""
    shipped = {file.stem: file for file in sorted(SHIPPED.glob("*.yaml"))}
    if name in shipped:
        return shipped[name]
    if Path(name).is_file():
        return Path(name)
    hint = nearest(name, shipped, "")
    hint = hint if hint.startswith("did") else "dynconv train --list shows the shipped ones"
    raise UserError(f"no recipe {name!r}: not shipped, and no such file; {hint}")


def load(path: Path, overrides: Sequence[str] = ()) -> Recipe:
    """Read a recipe; each override `key.sub=value` replaces one entry of it.

    An entry `base` names another recipe, whose entries hold where this one has none.
    Raises UserError with one line that names the key, its value and what would be valid.
    """
    import yaml

    tree = _tree(path)
    for override in overrides:
        key, equals, value = override.partition("=")
        if not equals:
            raise UserError(f"override {override!r}: write it as key=value, as train.lr=5e-4")
        try:
            _put(tree, key.split("."), yaml.safe_load(value))
        except yaml.YAMLError as error:
            raise UserError(f"override {override!r}: {' '.join(str(error).split())}") from None
    return parse(tree, str(path))


def _tree(path: Path, above: tuple[Path, ...] = ()) -> Any:
    """The entries of a recipe upon those of its base."""
    tree = read_yaml(path) or {}
    if not isinstance(tree, dict) or "base" not in tree:
        return tree
    name = tree.pop("base")
    if not isinstance(name, str):
        raise UserError(f"{path}: base {name!r} is not the name of a recipe")
    beside = (path.parent / f"{name}.yaml").resolve()
    below = beside if beside.is_file() and beside != path.resolve() else find(name).resolve()
    if below in (*above, path.resolve()):
        raise UserError(f"{path}: base {name} leads back to it")
    base = _tree(below, (*above, path.resolve()))
    if not isinstance(base, dict):
        raise UserError(f"{below}: a recipe is a mapping with data, model, train and decode")
    base.pop("published", None)  # what was published of the base
    return merge(base, tree)


def merge(base: Any, tree: Any) -> Any:
    """The entries of `tree`, and those of `base` that it has not."""
    if not isinstance(base, dict) or not isinstance(tree, dict):
        return tree
    return base | {key: merge(base.get(key), value) for key, value in tree.items()}


def _put(tree: Any, keys: list[str], value: Any) -> None:
    for i, key in enumerate(keys):
        if not isinstance(tree, dict):
            raise UserError(f"override {'.'.join(keys)}: {'.'.join(keys[:i])} has no entries")
        if i == len(keys) - 1:
            tree[key] = value
        else:
            tree = tree.setdefault(key, {})


def parse(tree: Any, where: str) -> Recipe:
    """A recipe from nested dictionaries; `where` begins the error."""
    from pydantic import TypeAdapter, ValidationError

    if not isinstance(tree, dict):
        raise UserError(f"{where}: a recipe is a mapping with data, model, train and decode")
    schema = {field.name: field.type for field in dataclasses.fields(Recipe)}
    schema["model"] = _model(tree.get("model"), where)
    if unknown := [key for key in tree if key not in schema]:
        raise UserError(f"{where}: unknown key {unknown[0]}; {_hint(unknown[0], schema)}")
    sections = {}
    for name, value in tree.items():
        try:
            sections[name] = TypeAdapter(schema[name]).validate_python(value)
        except ValidationError as error:
            problem = _explain(error.errors()[0], name, schema[name])
            raise UserError(f"{where}: {problem}") from None
    try:
        return Recipe(**sections)
    except ValueError as error:
        raise UserError(f"{where}: {error}") from None


def _model(tree: Any, where: str) -> type:
    """The class of the section `model`."""
    kind = tree.get("architecture", ModelConfig.architecture) if isinstance(tree, dict) else None
    if kind is None:
        return ModelConfig
    if not isinstance(kind, str) or kind not in MODELS:
        hint = _hint(kind, MODELS)
        raise UserError(f"{where}: model.architecture {kind!r} is not known; {hint}")
    return MODELS[kind]


def dump(recipe: Recipe) -> str:
    """The YAML of a resolved recipe, every key written out."""
    import yaml

    # lists, since YAML has no tuples
    return yaml.safe_dump(_lists(dataclasses.asdict(recipe)), sort_keys=False)


def _lists(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _lists(v) for key, v in value.items()}
    return [_lists(v) for v in value] if isinstance(value, list | tuple) else value


FREE = ("published", "decode.", "profile", "train.accumulate", "train.timeout")
"""what may change when a run goes on; accumulate only with the number of processes"""


def differences(ours: Recipe, theirs: Recipe, free: tuple[str, ...] = FREE) -> list[str]:
    """Keys that differ and do not begin with one of `free`, as `train.lr 0.001, not 0.0005`."""
    a, b = (dict(_flat(dataclasses.asdict(r))) for r in (ours, theirs))
    both = ((k, a.get(k), b.get(k)) for k in a | b if not k.startswith(free))
    return [f"{k} {here}, not {there}" for k, here, there in both if here != there]


def _flat(tree: dict, prefix: str = ""):
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _hint(name: Any, known: Iterable[str]) -> str:
    return nearest(str(name), known, "there are")


def _explain(error: dict, section: str, schema: Any) -> str:
    """One of pydantic's errors about a section, as `key: what is wrong with it`."""
    level, known, keys = schema, {}, [section]
    for part in error["loc"]:
        if not dataclasses.is_dataclass(level):
            break  # what follows names the types that were tried
        known = {field.name: field.type for field in dataclasses.fields(level)}
        keys.append(str(part))
        level = known.get(part)
    key = ".".join(keys)
    if error["type"] == "unexpected_keyword_argument":
        return f"unknown key {key}; {_hint(keys[-1], known)}"
    message = error["msg"].removeprefix("Value error, ")
    if error["type"] == "value_error":  # ours: it names the value
        return f"{key}: {message}"
    return f"{key} {error['input']!r}: {message}"
