"""Pairs of ids in memory."""

from collections.abc import Iterable

import numpy as np

from dynconv.text.batching import Batch, Pair, collate


class Pairs(list[Pair]):
    """Source and target of each pair, without <eos>; a list that batches are made of."""

    def lengths(self, chosen: Iterable[int]) -> np.ndarray:
        """Tokens of source and target, <eos> included: (n) indices to (n, 2) int64."""
        return np.array([(len(self[i][0]) + 1, len(self[i][1]) + 1) for i in chosen])

    def batch(self, chosen: Iterable[int]) -> Batch:
        """These pairs as tensors."""
        return collate([self[i] for i in chosen])
