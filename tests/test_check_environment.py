"""The self-test of the first lesson says in a sentence what is missing."""

import ast
import re
import sys
from importlib import import_module
from pathlib import Path

import jupytext
import pytest

from dynconv import ops
from dynconv.errors import UserError
from dynconv.teach import check

module = import_module("dynconv.teach.check.start")
LESSONS = Path(__file__).parents[1] / "lessons"


def test_environment_is_ready(capsys):
    check.environment()
    assert capsys.readouterr().out == "ready: packages, text and operators are here\n"


def test_environment_names_what_is_missing(monkeypatch):
    def unreadable(*split):
        raise UserError("no file test.de")

    def broken(*inputs, impl, **options):
        if impl == "auto":
            raise RuntimeError("the kernel fails")
        return depthwise_conv(*inputs, impl=impl, **options)

    depthwise_conv = ops.depthwise_conv
    monkeypatch.setattr(module, "find_spec", lambda name: None if name == "tokenizers" else 1)
    monkeypatch.setattr(module, "load_parallel", unreadable)
    monkeypatch.setattr(ops, "depthwise_conv", broken)
    with pytest.raises(AssertionError) as raised:
        check.environment()
    assert re.sub(r"line \d+", "line N", str(raised.value)).splitlines() == [
        "A convolution goes wrong, and `dynconv doctor` may say why: it raises RuntimeError in "
        "line N of broken: the kernel fails.",
        "The package tokenizers is missing: run pip install -e '.[lessons]' in the repository's "
        "folder.",
        "The text of the lessons cannot be read: no file test.de.",
    ]


@pytest.mark.parametrize("text", sorted(LESSONS.glob("*.md")), ids=lambda text: text.stem)
def test_environment_knows_every_package_that_a_lesson_imports(text):
    modules = set()
    for cell in jupytext.read(text).cells:
        for node in ast.walk(ast.parse(cell.source if cell.cell_type == "code" else "")):
            if isinstance(node, ast.ImportFrom):
                modules.add(node.module.split(".")[0])
            elif isinstance(node, ast.Import):
                modules |= {alias.name.split(".")[0] for alias in node.names}
    assert modules - sys.stdlib_module_names - {"dynconv"} <= module.PACKAGES
