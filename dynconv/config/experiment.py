"""The schema of experiments/*.yaml: an experiment compares systems, one per row.

An experiment is usually a table of a paper. Each row states only what differs from the base
recipe. `dynconv experiment` trains all rows, `dynconv train EXPERIMENT:ROW` one.
"""

import re
from dataclasses import field
from typing import Any

from dynconv.errors import UserError, name_hint, quoted
from dynconv.schema import checked_dataclass


@checked_dataclass
class ExperimentRow:
    """One system of an experiment."""

    name: str
    """the ROW in EXPERIMENT:ROW, and the beginning of the names of its run directories"""
    recipe: str | None = None
    """a recipe that replaces the experiment's base; it lists this row under `published`"""
    changes: dict[str, Any] = field(default_factory=dict)
    """entries that differ from the base, at both sizes"""
    laptop: dict[str, Any] = field(default_factory=dict)
    """more entries that differ at laptop size"""
    printed_name: str | None = None
    """the row's name in the paper, where it differs"""
    published: str | None = None
    """the score as printed, as text"""
    parameters: str | None = None
    """the number of parameters as printed: 213M"""
    note: str | None = None

    def __post_init__(self) -> None:
        if not re.fullmatch(r"\w[\w.-]{0,99}", self.name):
            raise ValueError(
                f"name {quoted(self.name)} cannot name a directory: write it as light-no-softmax"
            )


@checked_dataclass
class LaptopVersion:
    """A smaller version of the experiment, which trains on a laptop."""

    base: str
    metric_in_words: str
    """the metric of the laptop's scores, and how it differs from the paper's"""
    changes: dict[str, Any] = field(default_factory=dict)
    """entries that differ from the base in every row"""


@checked_dataclass
class Experiment:
    """An experiment at the paper's size and, if that is too large, at laptop size."""

    source: str
    """paper and table, or what is compared instead"""
    metric_in_words: str
    """the metric of the published scores; not a name of `dynconv.score.metric`"""
    rows: tuple[ExperimentRow, ...]
    base: str | None = None
    """the recipe that all rows without `recipe` build on"""
    changes: dict[str, Any] = field(default_factory=dict)
    """entries that differ from the base in every row"""
    laptop: LaptopVersion | None = None
    """entries that shrink the base to laptop size; null: `dynconv experiment` trains the rows at
    the paper's size"""

    def __post_init__(self) -> None:
        names = [row.name for row in self.rows]
        if not names:
            raise ValueError("rows is empty: list at least one")
        if repeated := [name for name in names if names.count(name) > 1]:
            raise ValueError(f"{repeated[0]} is the name of two rows")
        if self.base is None and (without := [row.name for row in self.rows if not row.recipe]):
            raise ValueError(f"{without[0]} has no recipe: give it one, or the experiment a base")

    def require_row(self, name: str) -> ExperimentRow:
        """Return the row of this name. Raises UserError when there is none."""
        rows = {row.name: row for row in self.rows}
        if name not in rows:
            raise UserError(
                f"no row {quoted(name)} in {self.source}; {name_hint(name, rows, 'there are')}"
            )
        return rows[name]
