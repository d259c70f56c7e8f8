"""What is shipped, as text: `dynconv train --list` and `dynconv ablate --list`."""

import textwrap
from collections.abc import Iterator
from pathlib import Path

from dynconv.config.load import (
    load_experiment,
    load_recipe,
    shipped_experiments,
    shipped_recipes,
)
from dynconv.config.recipe import Recipe

WIDTH = 140
"""most characters of a line"""
SMALL = ": shipped, for a laptop"


def recipe_names() -> list[str]:
    """Return the names that `dynconv train` knows: the recipes, and EXPERIMENT:ROW.

    Left out are the rows of experiments that are a recipe of their own.
    """
    rows = [
        f"{name}:{row.name}"
        for name, path in shipped_experiments().items()
        for row in load_experiment(path).rows
        if row.recipe is None
    ]
    return [*shipped_recipes(), *rows]


def list_recipes() -> str:
    """Return a table of all recipes and rows by data set, those of the shipped ones last.

    There is a line for each row of a paper's table that a recipe is meant to reproduce: its name,
    the printed value, what that is, the printed number of parameters, and the row. A recipe of no
    row has one line, with the beginning of its comment.
    """
    groups: dict[str, list[tuple[str, ...]]] = {}
    for name in recipe_names():
        recipe = load_recipe(name)
        groups.setdefault(data_set(recipe), []).extend(lines(name, recipe))
    blocks = sorted(groups.items(), key=lambda group: (group[0].endswith(SMALL), group[0]))
    return "\n\n".join(f"{name}\n{table(rows)}" for name, rows in blocks)


def list_experiments() -> str:
    """Return a line for each shipped experiment: its name, the number of rows, its source."""
    found = {name: load_experiment(path) for name, path in shipped_experiments().items()}
    width = max(map(len, found))
    return "\n".join(
        f"{name:{width}}  {len(each.rows):2} rows  {each.source}"
        + (", at full size" if each.base and each.laptop is None else "")
        for name, each in found.items()
    )


def data_set(recipe: Recipe) -> str:
    corpus = recipe.data.corpus
    name = corpus.removeprefix("prepared/")
    return name + SMALL if name == corpus else name


def lines(name: str, recipe: Recipe) -> Iterator[tuple[str, ...]]:
    if not recipe.published:
        yield name, "", "", "", read_comment(shipped_recipes()[name])
    for i, row in enumerate(recipe.published):
        first = "" if i else name
        yield first, row.value, row.metric, row.parameters or "", f"{row.source}: {row.row}"


def read_comment(path: Path) -> str:
    """Return the comment that a YAML file begins with, as one line."""
    text = path.read_text(encoding="utf-8").splitlines()
    end = next(i for i, line in enumerate(text) if not line.startswith("#"))
    return " ".join(" ".join(line.removeprefix("#") for line in text[:end]).split())


def table(rows: list[tuple[str, ...]]) -> str:
    *columns, _ = zip(*rows, strict=True)
    widths = [max(map(len, column)) for column in columns]
    widths = [width + 2 if width else 0 for width in widths]
    room = WIDTH - 2 - sum(widths)
    text = []
    for *cells, last in rows:
        start = "".join(map(str.ljust, cells, widths))
        text.append("  " + start + textwrap.shorten(last, room, placeholder=" ..."))
    return "\n".join(text)
