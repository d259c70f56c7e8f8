"""ARCHITECTURE.md is true: its tree, its imports, its files, and its mixer, which is trained."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
RINGS = [
    {"ops", "kernels", "layers", "models"},
    {"config", "text", "score", "decode", "tasks", "train"},
    {"cli", "lab", "teach"},
]


def test_the_tree_is_the_package():
    tree = TEXT.split("```")[1]
    named = set(re.findall(r"^  (\w+)(?:/|\.py)", tree, re.MULTILINE))
    there = {path.stem for path in (ROOT / "dynconv").iterdir() if not path.name.startswith("__")}
    assert named == there - {"py"}  # py.typed tells type checkers that there are types


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`((?:\w+/)+[\w.]+)`", TEXT))))
def test_every_file_that_it_names_is_there(path):
    assert (ROOT / path).exists() or (ROOT / "dynconv" / path).exists() or "NAME" in path


def imports(path: Path) -> set[str]:
    """Return the rooms of dynconv that a file imports anywhere in it, but for type checkers."""
    rooms, tree = set(), ast.parse(path.read_text(encoding="utf-8"))
    blocks = [node for node in tree.body if isinstance(node, ast.If)]
    types = [block for block in blocks if ast.unparse(block.test) == "TYPE_CHECKING"]
    skipped = {id(part) for block in types for part in ast.walk(block)}
    for node in (node for node in ast.walk(tree) if id(node) not in skipped):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        rooms |= {name.split(".")[1] for name in names if name.startswith("dynconv.")}
    return rooms


@pytest.mark.parametrize("room", sorted(RINGS[0] | RINGS[1]))
def test_imports_point_down(room):
    inner = next(i for i, ring in enumerate(RINGS) if room in ring)
    forbidden = set().union(*RINGS[inner + 1 :])
    for path in (ROOT / "dynconv" / room).rglob("*.py"):
        assert not imports(path) & forbidden, path


@pytest.mark.parametrize("name", ["errors", "files", "paths"])
def test_what_all_rings_use_imports_no_ring(name):
    assert imports(ROOT / "dynconv" / f"{name}.py") <= {"errors"}


def test_the_mixer_of_the_how_to_trains(yaml, tmp_path):
    program, run = tmp_path / "shift.py", tmp_path / "run"
    program.write_text(TEXT.split("```python\n")[1].split("```")[0], encoding="utf-8")
    changes = ["model.encoder.mixer=shift", "model.decoder.mixer=shift", "train.updates=2"]
    for arguments in (["train", yaml, *changes, "--run", run], ["evaluate", run]):
        done = subprocess.run(
            [sys.executable, program, *arguments], capture_output=True, text=True, cwd=ROOT
        )
        assert done.returncode == 0, done.stderr
    assert "mixer: shift" in (run / "recipe.yaml").read_text(encoding="utf-8")
