"""Results of the code released with the papers, to compare with.

`golden/` has a small choice of them, and always runs. The full set from which they were chosen is
compared, too, where it is at hand.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from conftest import ROOT

CHOSEN = ROOT / "tests" / "golden"
FULL = ROOT.parent / "shared" / "golden"


class Case(NamedTuple):
    """One call of the released code."""

    name: str
    meta: dict
    """sizes and switches"""
    arrays: dict[str, np.ndarray]
    """inputs, weights, outputs and gradients"""


@dataclass(frozen=True)
class Golden:
    """One of the two sets of numbers."""

    folder: Path

    def case(self, name: str) -> Case:
        """The case of that name."""
        with np.load(self.folder / f"{name}.npz") as file:
            arrays = dict(file)
        return Case(name, json.loads(str(arrays.pop("meta"))), arrays)

    def cases(self, pattern: str, chosen: int, full: int) -> list[Case]:
        """All whose name matches; AssertionError unless this set has as many as stated for it."""
        names = sorted(file.stem for file in self.folder.glob(f"{pattern}.npz"))
        expected = full if self.folder == FULL else chosen
        assert len(names) == expected, f"{len(names)} of {expected} cases {pattern}: {names}"
        return [self.case(name) for name in names]
