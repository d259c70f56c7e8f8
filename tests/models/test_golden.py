"""The repository's results of released code are a small, faithful part of the full set."""

import numpy as np
import pytest
from helpers.golden_cases import CHOSEN, FULL, Golden


def names() -> list[str]:
    return sorted(file.stem for file in CHOSEN.glob("*.npz"))


def test_the_choice_stays_small():
    assert len(names()) == 99
    assert sum(file.stat().st_size for file in CHOSEN.iterdir()) < 1_000_000


def test_the_readme_explains_every_family():
    text = (CHOSEN / "README.md").read_text(encoding="utf-8")
    for name in names():
        family = Golden(CHOSEN).case(name).meta["family"]
        assert f"`{family}`" in text, family


def test_the_choice_equals_the_full_set():
    if not FULL.is_dir():
        pytest.skip("the full set of released code's numbers is not present")
    for name in names():
        ours, theirs = Golden(CHOSEN).case(name), Golden(FULL).case(name)
        assert ours.meta.items() <= theirs.meta.items(), name
        for key, array in ours.arrays.items():
            np.testing.assert_array_equal(array, theirs.arrays[key], strict=True, err_msg=name)
