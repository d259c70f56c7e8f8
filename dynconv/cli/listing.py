"""What `dynconv train --list` and `dynconv experiment --list` print: recipes and experiments."""

import textwrap
from collections.abc import Iterator, Sequence

from dynconv.config import Recipe, load_recipe, recipe_names, require_recipe
from dynconv.config.load import load_experiments, read_comment
from dynconv.table import align
from dynconv.text.corpus import PREPARED

WIDTH = 140
"""maximum number of characters of a line"""
LAPTOP = ": shipped, for a laptop"
"""end of the heading of a corpus that is shipped"""


def list_recipes() -> str:
    """Return a table of all recipes and rows, grouped by data set, shipped data sets last.

    A recipe has one line per published score: its name, the score, the metric, the number of
    parameters, and the paper's row. Without published scores, one line quotes its comment.
    """
    groups: dict[str, list[tuple[str, ...]]] = {}
    for name in recipe_names():
        recipe = load_recipe(name)
        corpus = recipe.data.corpus.removeprefix(f"{PREPARED}/")
        group = corpus + (LAPTOP if corpus == recipe.data.corpus else "")
        groups.setdefault(group, []).extend(recipe_rows(name, recipe))
    blocks = sorted(groups.items(), key=lambda block: (block[0].endswith(LAPTOP), block[0]))
    return "\n\n".join(f"{name}\n{format_rows(rows)}" for name, rows in blocks)


def list_experiments() -> str:
    """Return a line for each shipped experiment: its name, the number of rows, its source."""
    rows = []
    for name, experiment in load_experiments().items():
        where = ", at full size" if experiment.base and experiment.laptop is None else ""
        rows.append((name, f"{len(experiment.rows):2} rows", experiment.source + where))
    return format_rows(rows)


def recipe_rows(name: str, recipe: Recipe) -> Iterator[tuple[str, ...]]:
    """Yield the cells of a recipe's lines."""
    if not recipe.published:
        yield name, "", "", "", read_comment(require_recipe(name))
    for i, row in enumerate(recipe.published):
        first, source = "" if i else name, f"{row.source}: {row.row}"
        yield first, row.value, row.metric_in_words, row.parameters or "", source


def format_rows(rows: Sequence[tuple[str, ...]]) -> str:
    """Return the lines of a table: columns aligned, empty ones left out, the last cut at WIDTH."""
    *columns, last = zip(*rows, strict=True)
    starts = align(zip(*filter(any, columns), [""] * len(rows), strict=True))
    return "\n".join(
        f"  {start}{textwrap.shorten(cell, WIDTH - 2 - len(start), placeholder=' ...')}"
        for start, cell in zip(starts, last, strict=True)
    )
