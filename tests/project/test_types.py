"""The annotations of the public interface hold, as mypy sees them."""

import subprocess
import sys

import pytest
from conftest import ROOT

from dynconv import config, models, text


def mypy(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "mypy", *arguments], cwd=ROOT, capture_output=True, text=True
    )


def test_annotations():
    """What is checked is in pyproject.toml; a second run takes a second."""
    done = mypy()
    assert done.returncode == 0, done.stdout + done.stderr


def test_exports_have_types(tmp_path):
    """Also packages that import a name when it is first used declare what the name is."""
    program = tmp_path / "program.py"
    exports = [f"{z.__name__}.{name}" for z in (config, models, text) for name in z.__all__]
    lines = ["import dynconv.config, dynconv.models, dynconv.text"]
    program.write_text("\n".join([*lines, *(f"reveal_type({name})" for name in exports)]))
    options = ["--strict", "--enable-error-code=misc", "--follow-imports=silent"]
    revealed = mypy(*options, program).stdout
    assert revealed.count("Revealed type") == len(exports)
    assert '"Any"' not in revealed and "error" not in revealed, revealed


@pytest.mark.parametrize("package", [models, text], ids=["models", "text"])
def test_lazy_exports_are_there(package):
    assert all(getattr(package, name) is not None for name in package.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'wrong'"):
        _ = package.wrong
