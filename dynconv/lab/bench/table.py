"""Formats the tables of `dynconv bench` as text, at most 100 columns wide."""

from collections.abc import Callable, Sequence
from textwrap import wrap
from typing import NamedTuple

WIDTH = 100


class Column(NamedTuple):
    """A column of a table: its title, its width in characters, and its value in a row.

    Integers and texts are printed as they are, other numbers by `format_number`, None as a dash.
    """

    title: str
    width: int
    value: Callable[[dict], float | str | None]

    def cell(self, row: dict) -> str:
        """Return the row's value, aligned to the right."""
        value = self.value(row)
        if isinstance(value, int | str):
            return f"{value if isinstance(value, str) else f'{value:,}':>{self.width}}"
        return format_number(value, self.width)


def bench_table(
    title: str,
    label: Callable[[dict], str],
    label_width: int,
    columns: Sequence[Column],
    rows: Sequence[dict],
    note: str = "note",
) -> str:
    """Return a title, the columns' titles, a line for each row, and below them the rows' notes.

    title  one or more lines
    label  returns the text at the left of a row
    note   the entry of a row that says what no column can say; rows without it have no note
    """
    lines = ["", title, " " * label_width + "".join(f"{c.title:>{c.width}}" for c in columns)]
    notes = []
    for row in rows:
        name = label(row)
        lines.append(f"{name:{label_width}}" + "".join(column.cell(row) for column in columns))
        if row.get(note):
            notes += wrap(f"- {' '.join(name.split())}: {row[note]}", WIDTH)
    return "\n".join(lines + notes)


def format_number(number: float | None, width: int = 0) -> str:
    """Return a number with three significant digits, or all before the point; a dash for None."""
    if number is None:
        return f"{'-':>{width}}"
    places = 3 if 0 < number < 0.1 else 2 if number < 10 else 1 if number < 100 else 0
    return f"{number:>{width},.{places}f}"


def shape_title(row: dict) -> str:
    """Return a row's dtype and shape as the title of a table."""
    return f"{row['dtype']}, " + ", ".join(f"{name} = {row[name]:,}" for name in "BTCH")
