"""A control, its record, and the code of the lesson that it runs."""

import ast
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jupytext

from dynconv.lab import ledger
from dynconv.paths import data_dir
from dynconv.teach.checkout import require_checkout

DEFINITIONS = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef)


class Control(NamedTuple):
    """A measurement for a lesson, which is recorded in data/results."""

    what: str
    """what is measured, in a sentence"""
    seeds: Sequence[int]
    measure: Callable[[], dict[str, Any]]
    """returns the numbers"""


def record_control(name: str, control: Control, command: str) -> None:
    """Run a control, which this command does, and write data/results/NAME.json."""
    record = ledger.new_record(control.what, command, {}, seeds=control.seeds)
    record["numbers"] = control.measure()
    ledger.write(data_dir() / f"results/{name}.json", record)


def run_definitions(lesson: str, *values: str) -> dict[str, Any]:
    """Return what the cells of a lesson import and define, and its `values`, by name."""
    names: dict[str, Any] = {"__name__": lesson}
    for cell in jupytext.read(require_checkout() / "lessons" / f"{lesson}.md").cells:
        if cell.cell_type != "code" or "solution" in cell.metadata.get("tags", []):
            continue
        for node in ast.parse(cell.source).body:
            assigned = set()
            if isinstance(node, ast.Assign):
                targets = (name for target in node.targets for name in ast.walk(target))
                assigned = {name.id for name in targets if isinstance(name, ast.Name)}
            if isinstance(node, DEFINITIONS) or assigned & {*values}:
                exec(compile(ast.Module([node], []), lesson, "exec"), names)
    return names
