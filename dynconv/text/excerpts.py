"""Excerpts that a language model is trained on: the lines of a text, or blocks of it."""

from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path

import numpy as np

from dynconv.text.batching import Batch, collate_text
from dynconv.text.prepared import Prepared
from dynconv.text.vocabulary import EOS, Vocabulary


class Excerpts:
    """Stretches of a text, each with the token before it, which predicts its first token.

    Without `block`, each line is an excerpt, after the <eos> of the line before. Otherwise the text
    is cut into blocks of `block` tokens, regardless of its lines (Baevski and Auli 2019).
    """

    def __init__(self, tokens: np.ndarray, eos: np.ndarray, block: int | None, directory: Path):
        """tokens: <eos>, line, <eos>, line, <eos> ...; eos: the position of each <eos>."""
        last = len(tokens) - 1
        self.tokens, self.directory = tokens, directory
        self.bounds = eos if block is None else np.append(np.arange(0, last, block), last)

    @classmethod
    def of(cls, corpus: Prepared, block: int | None) -> "Excerpts":
        """Return the excerpts of a prepared training split."""
        return cls(corpus.tokens, corpus.bounds, block, corpus.directory)

    @classmethod
    def encode(
        cls, lines: Sequence[str], vocabulary: Vocabulary, block: int | None, directory: Path
    ) -> "Excerpts":
        """Encode lines that are in memory."""
        ids = vocabulary.encode(lines)
        tokens = np.array([EOS, *chain.from_iterable(chain(line, (EOS,)) for line in ids)])
        eos = np.cumsum([0, *(len(line) + 1 for line in ids)])
        return cls(tokens, eos, block, directory)

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def __getitem__(self, i: int) -> np.ndarray:
        """Return the ids of excerpt i and the one before it, as a view."""
        i = range(len(self))[i]  # IndexError beyond the end; -1 is the last
        start, end = self.bounds[i : i + 2].tolist()
        return self.tokens[start : end + 1]

    def lengths(self, chosen: np.ndarray) -> np.ndarray:
        """Count 0 source tokens and the tokens to predict: (n) indices to (n, 2) int64."""
        chosen = np.asarray(chosen, dtype=np.int64)
        target = self.bounds[chosen + 1] - self.bounds[chosen]
        return np.stack([np.zeros_like(target), target], axis=1)

    def batch(self, chosen: Iterable[int]) -> Batch:
        """Collate these excerpts into a batch."""
        return collate_text([self[i] for i in chosen])
