"""The annotations of the public interface hold, as mypy sees them."""

import subprocess
import sys

from conftest import ROOT


def test_annotations():
    """What is checked is in pyproject.toml; a second run takes a second."""
    done = subprocess.run([sys.executable, "-m", "mypy"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
