"""Fixtures that several tests share."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture
def golden() -> Path:
    """The folder of known answers; it lies beside the repository, not in it."""
    folder = ROOT.parent / "shared" / "golden"
    if not folder.is_dir():
        pytest.skip("shared golden folder not present")
    return folder
