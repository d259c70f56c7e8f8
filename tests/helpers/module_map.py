"""Writes the section "Every module" of ARCHITECTURE.md from the docstrings: `make map`."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
MAP = ROOT / "ARCHITECTURE.md"
SECTION = re.compile(r"(?<=## Every module\n\n).*?(?=\n## |\Z)", re.DOTALL)
ROOMS = "ops kernels layers models config text score decode tasks train cli lab teach".split()


def module_map() -> str:
    """Return a table per room, whose head is the room and whose rows are its modules."""
    package = ROOT / "dynconv"
    tables = []
    for room in ROOMS:
        files = [file for file in (package / room).rglob("*.py") if file.name != "__init__.py"]
        files = sorted(files, key=lambda file: (len(file.parts), file))
        rows = [f"| `{file.relative_to(package)}` | {first_sentence(file)} |" for file in files]
        head = f"| `{room}/` | {first_sentence(package / room / '__init__.py')} |"
        tables.append("\n".join([head, "|---|---|", *rows, ""]))
    intro = "`make map` writes these tables: the first sentence of each module's docstring.\n\n"
    return intro + "\n".join(tables)


def first_sentence(file: Path) -> str:
    """Return the first sentence of a file's docstring, as a cell of a table."""
    text = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    paragraph = " ".join(text.partition("\n\n")[0].split())
    return re.split(r"\. (?=[A-Z])", paragraph)[0].rstrip(".:").replace("<", "&lt;")


if __name__ == "__main__":
    old = MAP.read_text(encoding="utf-8")
    MAP.write_text(SECTION.sub(lambda _: module_map(), old), encoding="utf-8")
