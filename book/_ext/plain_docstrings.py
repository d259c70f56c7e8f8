"""Docstrings on the page of the package: plain text, which Sphinx would take for markup."""

import re

FOREIGN = ("Define the computation performed at every call.", "Alias for field number ")
"""How docstrings begin that PyTorch and Python give to what has none."""
COLUMNS = re.compile(r"^\s|\S\s{2,}\S", re.MULTILINE)


def to_markup(app, what, name, object, options, lines):
    """Turn the lines of a docstring into reStructuredText, in place.

    A paragraph whose lines are indented or stand in columns keeps its form; code stays code.
    """
    if lines and lines[0].startswith(FOREIGN):
        lines.clear()
    paragraphs = "\n".join(lines).strip().split("\n\n")
    lines[:] = "\n\n".join(map(convert, paragraphs)).split("\n")


def convert(paragraph: str) -> str:
    """Return a paragraph of plain text as reStructuredText."""
    if COLUMNS.search(paragraph):
        return ".. code-block:: text\n\n" + "\n".join(
            f"    {line}" for line in paragraph.split("\n")
        )
    parts = re.split(r"(`[^`\n]+`)", paragraph)
    return "".join(
        f"`{part}`"
        if part.startswith("`") and len(part) > 1
        else re.sub(r"([*|_\\`])", r"\\\1", part)
        for part in parts
    )


def setup(app):
    app.connect("autodoc-process-docstring", to_markup)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
