"""The space of `dynconv tune`: settings that a YAML file lists, drawn, and tried on a recipe."""

import json
from collections.abc import Collection, Container, Iterator, Sequence
from contextlib import suppress
from itertools import combinations, product
from typing import Any

from optuna.distributions import CategoricalDistribution, FloatDistribution

from dynconv.config import load_recipe
from dynconv.config.find import require_file, yaml_files
from dynconv.config.load import override_keys, refuse_overrides
from dynconv.config.tree import keys_overlap
from dynconv.errors import UserError
from dynconv.paths import PACKAGE
from dynconv.schema import Flag, Fraction, checked_dataclass, finite, validated, whole
from dynconv.yaml12 import read_yaml

SPACES = PACKAGE / "spaces"
MANY = 1_000_000_000
"""more updates than any warm-up has"""


@checked_dataclass
class Range:
    """An interval of numbers to draw from."""

    low: finite()
    high: finite()
    log: Flag = False
    """whether to draw uniformly in the logarithm"""

    def __post_init__(self) -> None:
        if not self.low < self.high or (self.log and self.low <= 0):
            raise ValueError(
                f"low {self.low:g} must be below high {self.high:g}, and positive if log"
            )


@checked_dataclass
class SearchSpace:
    """The settings that trials are drawn from, and the rounds of successive halving."""

    settings: dict[str, Range | list[Any]]
    """settings to draw, keyed by entry of the recipe: an interval, or a list of choices"""
    fractions: tuple[Fraction, ...] = (1.0,)
    """shares of the recipe's updates for which each round trains"""
    reduction_factor: whole(2) = 4
    """the reduction per round: 1 / reduction_factor of the trials in a round continue in the
    next"""

    def __post_init__(self) -> None:
        if not self.settings:
            raise ValueError("settings is empty: name at least one entry of the recipe")
        if empty := [key for key, values in self.settings.items() if values == []]:
            raise ValueError(f"settings.{empty[0]} is empty: list at least one choice")

    def distributions(self, unused: Container[str]) -> dict[str, Any]:
        """Return Optuna's distribution of each setting, without those that have no effect."""
        return {
            key: FloatDistribution(values.low, values.high, log=values.log)
            if isinstance(values, Range)
            else CategoricalDistribution(values)
            for key, values in self.settings.items()
            if key not in unused
        }

    def overrides(self, drawn: dict[str, Any]) -> list[str]:
        """Write drawn settings as key=value, those from an interval with three digits."""
        return [
            f"{key}={value:.3g}"
            if isinstance(self.settings[key], Range)
            else f"{key}={value if isinstance(value, str) else json.dumps(value)}"
            for key, value in drawn.items()
        ]

    def corners(self, keys: Collection[str]) -> Iterator[list[str]]:
        """Yield settings of these entries, as overrides, to try on a recipe.

        For each pair of entries, try every combination of their choices, or of an interval's ends
        and middle; all other entries keep their first value.
        """
        values = {
            key: [x.low, (x.low + x.high) / 2, x.high] if isinstance(x, Range) else x
            for key, x in self.settings.items()
            if key in keys
        }
        first = {key: each[0] for key, each in values.items()}
        for pair in combinations(values, min(2, len(values))):
            for chosen in product(*(values[key] for key in pair)):
                yield self.overrides(first | dict(zip(pair, chosen, strict=True)))


def load_space(name: str) -> SearchSpace:
    """Read a search space: a shipped name, or else a path, as for recipes."""
    path = require_file(name, yaml_files(SPACES), "search space")
    return validated(SearchSpace, read_yaml(path), str(path))


def check_not_replaced(overrides: Sequence[str], search: SearchSpace, space: str) -> None:
    """Raise UserError if an override and the space set the same entry.

    The same if either sets one that every round decides (`overrides_of_round`). The overrides may
    state train.updates, because the rounds train for shares of it.
    """
    reason = "has no effect: every trial validates once, at its end; leave it out"
    refuse_overrides(overrides, ["train.checkpoint_every"], reason)
    for key in override_keys(overrides_of_round(1)) & search.settings.keys():
        raise UserError(
            f"space {space} searches {key}, but each round decides it: pass --space FILE, "
            f"{copy_of(space)} without {key}"
        )
    for key, given in product(search.settings, override_keys(overrides)):
        if keys_overlap(key, given):
            raise UserError(
                f"{key} is given and searched by space {space}: leave it out, or pass --space "
                f"FILE, {copy_of(space)} without {key}"
            )


def copy_of(space: str) -> str:
    """Return the words `a copy of FILE`, with which an error suggests a starting point."""
    return f"a copy of {require_file(space, yaml_files(SPACES), 'search space')}"


def check_corners(
    name: str,
    overrides: Sequence[str],
    search: SearchSpace,
    space: str,
    keys: Collection[str],
    updates: int,
) -> None:
    """Raise UserError if the recipe refuses a corner of the space, before any trial is drawn.

    keys     the entries that are searched
    updates  the number of updates of the first round
    """
    for settings in search.corners(keys):
        try:
            load_recipe(name, [*overrides, *settings, *overrides_of_round(updates)])
        except UserError as error:
            remedy = f"pass --space FILE, {copy_of(space)} with values that fit"
            with suppress(UserError):
                load_recipe(name, [*overrides, *settings, *overrides_of_round(MANY)])
                remedy = (
                    f"raise train.updates, because the first round trains for only {updates}, "
                    f"or {remedy}"
                )
            drawn = " ".join(settings)
            raise UserError(f"{error}; space {space} searches {drawn}: {remedy}") from None


def overrides_of_round(updates: int) -> list[str]:
    """Return the overrides with which a trial trains for `updates` updates and then validates."""
    return [f"train.updates={updates}", f"train.checkpoint_every={updates}"]
