"""Recipes: YAML checked against the dataclasses of `dynconv.config`."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dynconv.config import Recipe
from dynconv.errors import UserError, nearest

SHIPPED = Path(__file__).parent / "recipes"


def find(name: str) -> Path:
    """The file of a recipe: a shipped name, or a path."""
    shipped = {file.stem: file for file in sorted(SHIPPED.glob("*.yaml"))}
    if name in shipped:
        return shipped[name]
    if Path(name).is_file():
        return Path(name)
    hint = nearest(name, shipped, "shipped are")
    raise UserError(f"no recipe {name!r}: not shipped, and no such file; {hint}")


def load(path: Path, overrides: Sequence[str] = ()) -> Recipe:
    """Read a recipe; each override `key.sub=value` replaces one entry of it.

    Raises UserError with one line that names the key, its value and what would be valid.
    """
    import yaml

    try:
        tree = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
        for override in overrides:
            key, equals, value = override.partition("=")
            if not equals:
                raise UserError(f"override {override!r}: write it as key=value, as train.lr=5e-4")
            _put(tree, key.split("."), yaml.safe_load(value))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: not a readable recipe: {' '.join(str(error).split())}") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None
    return parse(tree, str(path))


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

    try:
        return TypeAdapter(Recipe).validate_python(tree)
    except ValidationError as error:
        raise UserError(f"{where}: {_explain(error.errors()[0])}") from None


def dump(recipe: Recipe) -> str:
    """The YAML of a resolved recipe, every key written out."""
    import yaml

    # lists, since YAML has no tuples
    return yaml.safe_dump(_lists(dataclasses.asdict(recipe)), sort_keys=False)


def _lists(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _lists(v) for key, v in value.items()}
    return [_lists(v) for v in value] if isinstance(value, tuple) else value


FREE = ("decode.", "profile", "train.accumulate")
"""what may change when a run goes on; accumulate only with the number of processes"""


def differences(ours: Recipe, theirs: Recipe, free: tuple[str, ...] = FREE) -> list[str]:
    """Keys that differ and do not begin with one of `free`, as `train.lr 0.001, not 0.0005`."""
    a, b = (dict(_flat(dataclasses.asdict(r))) for r in (ours, theirs))
    return [f"{k} {a[k]}, not {b[k]}" for k in a if a[k] != b[k] and not k.startswith(free)]


def _flat(tree: dict, prefix: str = ""):
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _explain(error: dict) -> str:
    """One of pydantic's errors, as `key: what is wrong with it`."""
    level, known, keys = Recipe, [], []
    for part in error["loc"]:
        known = [field.name for field in dataclasses.fields(level)]
        keys.append(str(part))
        field = next((f for f in dataclasses.fields(level) if f.name == part), None)
        if field is None or not dataclasses.is_dataclass(field.type):
            break
        level = field.type
    key = ".".join(keys)
    if error["type"] == "unexpected_keyword_argument":
        return f"unknown key {key}; {nearest(keys[-1], known, 'there are')}"
    if not keys:
        return "a recipe is a mapping with data, model, train and decode"
    message = error["msg"].removeprefix("Value error, ")
    if error["type"] == "value_error":  # ours: it names the value
        return f"{key}: {message}"
    return f"{key} {error['input']!r}: {message}"
