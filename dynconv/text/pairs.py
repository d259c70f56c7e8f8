"""Sentence pairs that translation is trained on and validated with."""

import sys
from collections.abc import Iterable
from itertools import chain
from pathlib import Path

import numpy as np

from dynconv.text.batching import Batch, Pair, collate
from dynconv.text.prepared import Prepared


class Pairs:
    """Source and target ids of each pair, without <eos>, one after the other in one array."""

    def __init__(
        self,
        tokens: np.ndarray,
        bounds: np.ndarray,
        max_source: int = sys.maxsize,
        directory: Path | None = None,
    ):
        """tokens: source, target, source ...; bounds: where each starts, and where the last ends.

        max_source: tokens of a source that are kept
        """
        self.tokens, self.bounds = tokens, bounds
        self.max_source, self.directory = max_source, directory

    @classmethod
    def of(cls, corpus: Prepared, max_source: int = sys.maxsize) -> "Pairs":
        """Return the pairs of a prepared training split; they are read from the disk when used."""
        return cls(corpus.tokens, corpus.bounds, max_source, corpus.directory)

    @classmethod
    def from_ids(cls, pairs: Iterable[Pair]) -> "Pairs":
        """Return pairs of ids that are in memory."""
        sides = [np.asarray(ids, np.int64) for ids in chain.from_iterable(pairs)]
        return cls(np.concatenate(sides), np.cumsum([0, *map(len, sides)]))

    def __len__(self) -> int:
        return len(self.bounds) // 2

    def __getitem__(self, i: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the source and target of pair i as views."""
        i = range(len(self))[i]  # IndexError beyond the end; -1 is the last
        start, middle, end = self.bounds[2 * i : 2 * i + 3].tolist()
        cut = min(middle, start + self.max_source)
        return self.tokens[start:cut], self.tokens[middle:end]

    def lengths(self, chosen: Iterable[int] | np.ndarray) -> np.ndarray:
        """Count the tokens of source and target, <eos> included: (n) indices to (n, 2) int64."""
        first = 2 * np.asarray(chosen, dtype=np.int64)
        start, middle, end = (self.bounds[first + k] for k in range(3))
        source = np.minimum(middle - start, self.max_source)
        return np.stack([source, end - middle], axis=1) + 1

    def batch(self, chosen: Iterable[int]) -> Batch:
        """Collate these pairs into a batch."""
        return collate([self[i] for i in chosen])
