"""What an ablation compares: YAML in `dynconv/ablations/`, or a user's own, checked when read."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from dynconv.config import Recipe
from dynconv.config import load as recipes
from dynconv.config.files import read_yaml
from dynconv.errors import UserError, nearest

SHIPPED = Path(__file__).parents[2] / "ablations"


@dataclass(frozen=True)
class Row:
    """One system of the table."""

    __pydantic_config__ = {"extra": "forbid"}

    name: str
    """begins the names of its run directories"""
    recipe: str | None = None
    """null: the ablation's base"""
    changes: dict[str, Any] = field(default_factory=dict)
    """entries of the recipe, after those that the ablation changes in every row"""
    row: str | None = None
    """what the paper calls it"""
    published: str | None = None
    """as printed"""
    note: str | None = None

    def __post_init__(self) -> None:
        if not re.fullmatch(r"\w[\w.-]*", self.name):
            raise ValueError(f"name {self.name!r} is to be one of a directory: as light-no-softmax")


@dataclass(frozen=True)
class Ablation:
    """The rows of one table."""

    __pydantic_config__ = {"extra": "forbid"}

    source: str
    """paper and table, or what else is compared"""
    metric: str
    """in words: ours, and the paper's"""
    rows: tuple[Row, ...]
    base: str | None = None
    """the recipe of the rows that name none"""
    changes: dict[str, Any] = field(default_factory=dict)
    """entries of the recipe that are replaced in every row"""

    def __post_init__(self) -> None:
        names = [row.name for row in self.rows]
        if not names:
            raise ValueError("rows lists none")
        if twice := [name for name in names if names.count(name) > 1]:
            raise ValueError(f"{twice[0]} is the name of two rows")
        if self.base is None and (without := [row.name for row in self.rows if not row.recipe]):
            raise ValueError(f"{without[0]} has no recipe: give it one, or the ablation a base")

    def recipe(self, row: Row, overrides: Sequence[str] = ()) -> Recipe:
        """A row's recipe: the base, the changes of all rows, those of this one, `key=value`s.

        Raises UserError that names the row.
        """
        changes = (*assignments(self.changes), *assignments(row.changes), *overrides)
        try:
            return recipes.load(recipes.find(row.recipe or self.base), changes)
        except UserError as error:
            raise UserError(f"row {row.name}: {error}") from None


def assignments(tree: dict[str, Any], prefix: str = "") -> Iterator[str]:
    """The entries of a nested dictionary as `key.sub=value`."""
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from assignments(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}={json.dumps(value, default=str)}"  # JSON is YAML


def shipped() -> dict[str, Path]:
    """The shipped ablations by name."""
    return {file.stem: file for file in sorted(SHIPPED.glob("*.yaml"))}


def find(name: str) -> Path:
    """The file of an ablation: a shipped name, or a path."""
    known = shipped()
    if name in known:
        return known[name]
    if Path(name).is_file():
        return Path(name)
    hint = nearest(name, known, "shipped are")
    raise UserError(f"no ablation {name!r}: not shipped, and no such file; {hint}")


def load(path: Path) -> Ablation:
    """Read an ablation. Raises UserError with one line that names the key and its value."""
    from pydantic import TypeAdapter, ValidationError

    tree = read_yaml(path)
    try:
        return TypeAdapter(Ablation).validate_python(tree)
    except ValidationError as error:
        raise UserError(f"{path}: {explain(error.errors()[0])}") from None


def explain(error: dict) -> str:
    """One of pydantic's errors, as `key: what is wrong with it`."""
    key = ".".join(map(str, error["loc"])) or "the ablation"
    if error["type"] == "unexpected_keyword_argument":
        level = Ablation if len(error["loc"]) == 1 else Row
        hint = nearest(str(error["loc"][-1]), [f.name for f in fields(level)], "there are")
        return f"unknown key {key}; {hint}"
    message = error["msg"].removeprefix("Value error, ")
    if error["type"] in ("value_error", "missing"):
        return f"{key}: {message}"
    return f"{key} {error['input']!r}: {message}"


def listing() -> str:
    """The shipped ablations: name, number of rows, source."""
    found = {name: load(path) for name, path in shipped().items()}
    width = max(map(len, found))
    return "\n".join(
        f"{name:{width}}  {len(each.rows):2} rows  {each.source}" for name, each in found.items()
    )
