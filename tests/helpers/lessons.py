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
