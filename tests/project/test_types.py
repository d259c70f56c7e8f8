"""The annotations of the public interface hold, as mypy sees them."""

import subprocess
import sys
import tomllib

import pytest
from conftest import ROOT

from dynconv import config, models, text

EXPORTS = [f"{z.__name__}.{name}" for z in (config, models, text) for name in z.__all__]


@pytest.fixture(scope="module")
def checked(tmp_path_factory) -> subprocess.CompletedProcess:
    """What mypy says of the files in pyproject.toml, and of a program that names all exports.

    Both in one run, because each run with other options would read all of PyTorch anew.
    """
    program = tmp_path_factory.mktemp("types") / "program.py"
    lines = ["import dynconv.config, dynconv.models, dynconv.text"]
    program.write_text("\n".join([*lines, *(f"reveal_type({name})" for name in EXPORTS)]))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    command = [sys.executable, "-m", "mypy", *project["tool"]["mypy"]["files"], program]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


def test_annotations(checked):
    """What is checked is in pyproject.toml; a second run takes a second."""
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_exports_have_types(checked):
    """Also packages that import a name when it is first used declare what the name is."""
    revealed = checked.stdout
    assert revealed.count("Revealed type") == len(EXPORTS)
    assert '"Any"' not in revealed and "error" not in revealed, revealed


@pytest.mark.parametrize("package", [models, text], ids=["models", "text"])
def test_lazy_exports_are_there(package):
    assert all(getattr(package, name) is not None for name in package.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'wrong'"):
        _ = package.wrong


@pytest.mark.parametrize("package", [models, text], ids=["models", "text"])
def test_lazy_exports_are_listed_before_they_are_used(package):
    program = f"import {package.__name__} as package; print(*dir(package))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert set(package.__all__) <= set(done.stdout.split()), done.stderr
