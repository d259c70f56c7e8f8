"""All shipped recipes and what the papers report of them: `dynconv train --list`."""

import textwrap
from collections.abc import Iterator
from pathlib import Path

from dynconv.config import Recipe
from dynconv.config.load import SHIPPED, load

WIDTH = 140
"""most characters of a line"""
SMALL = ": shipped, for a laptop"


def listing() -> str:
    """Recipes by data set, those of the shipped ones last.

    A recipe has a line for each row of a paper's table that it is meant to reproduce: its name,
    the printed value, what that is, the printed number of parameters, and the row. A recipe of no
    row has one line, with the beginning of its comment.
    """
    groups: dict[str, list[tuple[str, ...]]] = {}
    for path in sorted(SHIPPED.glob("*.yaml"), key=lambda path: path.stem):
        recipe = load(path)
        groups.setdefault(_data_set(recipe), []).extend(_lines(path, recipe))
    blocks = sorted(groups.items(), key=lambda group: (group[0].endswith(SMALL), group[0]))
    return "\n\n".join(f"{name}\n{_table(rows)}" for name, rows in blocks)


def _data_set(recipe: Recipe) -> str:
    corpus = recipe.data.corpus
    name = corpus.removeprefix("prepared/")
    return name + SMALL if name == corpus else name


def _lines(path: Path, recipe: Recipe) -> Iterator[tuple[str, ...]]:
    if not recipe.published:
        yield path.stem, "", "", "", comment(path)
    for i, row in enumerate(recipe.published):
        name = "" if i else path.stem
        yield name, row.value, row.metric, row.parameters or "", f"{row.source}: {row.row}"


def comment(path: Path) -> str:
    """The comment that a recipe begins with, as one line."""
    lines = path.read_text(encoding="utf-8").splitlines()
    end = next(i for i, line in enumerate(lines) if not line.startswith("#"))
    return " ".join(" ".join(line.removeprefix("#") for line in lines[:end]).split())


def _table(rows: list[tuple[str, ...]]) -> str:
    *columns, _ = zip(*rows, strict=True)
    widths = [max(map(len, column)) for column in columns]
    widths = [width + 2 if width else 0 for width in widths]
    room = WIDTH - 2 - sum(widths)
    lines = []
    for *cells, last in rows:
        start = "".join(map(str.ljust, cells, widths))
        lines.append("  " + start + textwrap.shorten(last, room, placeholder=" ..."))
    return "\n".join(lines)
