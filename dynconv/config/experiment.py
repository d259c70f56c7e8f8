"""Defines experiments: the rows of a table, as the few entries in which they differ."""

import re
from dataclasses import field
from typing import Any

from dynconv.config.schema import checked_dataclass
from dynconv.errors import UserError, nearest, shown


@checked_dataclass
class Row:
    """Describes one system of the table."""

    name: str
    """the ROW in EXPERIMENT:ROW; the names of its run directories begin with it"""
    recipe: str | None = None
    """the recipe to start from in place of the experiment's base; it lists this row as published"""
    changes: dict[str, Any] = field(default_factory=dict)
    """entries of the recipe that it changes, at both sizes"""
    laptop: dict[str, Any] = field(default_factory=dict)
    """entries that it changes on a laptop in addition"""
    row: str | None = None
    """what the paper calls it"""
    published: str | None = None
    """the score as printed, as text"""
    parameters: str | None = None
    """as printed: 213M"""
    note: str | None = None

    def __post_init__(self) -> None:
        if not re.fullmatch(r"\w[\w.-]{0,99}", self.name):
            raise ValueError(
                f"name {shown(self.name)} cannot name a directory: write it as light-no-softmax"
            )


@checked_dataclass
class Laptop:
    """Describes how the table is run on a laptop."""

    base: str
    metric: str
    """what the laptop measures and what the paper measures, in words"""
    changes: dict[str, Any] = field(default_factory=dict)
    """entries that every row changes"""


@checked_dataclass
class Experiment:
    """Describes a table, at the size of the paper and, where that is too large, a laptop's."""

    source: str
    """paper and table, or what is compared instead"""
    metric: str
    """what `published` is, in words"""
    rows: tuple[Row, ...]
    base: str | None = None
    """the recipe of the rows that name none"""
    changes: dict[str, Any] = field(default_factory=dict)
    """entries that every row changes"""
    laptop: Laptop | None = None
    """null: `dynconv ablate` runs the rows as they are"""

    def __post_init__(self) -> None:
        names = [row.name for row in self.rows]
        if not names:
            raise ValueError("rows lists none")
        if repeated := [name for name in names if names.count(name) > 1]:
            raise ValueError(f"{repeated[0]} is the name of two rows")
        if self.base is None and (without := [row.name for row in self.rows if not row.recipe]):
            raise ValueError(f"{without[0]} has no recipe: give it one, or the experiment a base")

    def find_row(self, name: str) -> Row:
        """Return the row of this name. Raises UserError when there is none."""
        rows = {row.name: row for row in self.rows}
        if name not in rows:
            raise UserError(
                f"no row {shown(name)} in {self.source}; {nearest(name, rows, 'there are')}"
            )
        return rows[name]
