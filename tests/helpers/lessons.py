"""The texts of the lessons."""

from functools import cache
from pathlib import Path

import jupytext
from conftest import ROOT

LESSONS = ROOT / "lessons"
TEXTS = sorted(LESSONS.glob("*.md"))
TEMPLATE = ROOT / "book/lesson_template.md"
"""what a new lesson begins as"""


@cache
def all_cells(text: Path) -> list:
    """The cells of a lesson's text; tests only read them."""
    return jupytext.read(text).cells


def cells(text: Path, kind: str) -> list:
    return [cell for cell in all_cells(text) if cell.cell_type == kind]


def prose(text: Path) -> str:
    return "\n\n".join(cell.source for cell in cells(text, "markdown"))


def first_edition(source: str) -> bool:
    """Whether a lesson still has the form of the first edition, with the same headings in each."""
    return "**You will build**" in source
