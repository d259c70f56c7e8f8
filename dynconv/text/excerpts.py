"""What a language model is trained on: the lines of a text, or blocks of it."""

from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path

import numpy as np

from dynconv.text.batching import Batch, collate_text
from dynconv.text.prepared import Prepared
from dynconv.text.vocabulary import EOS, Vocabulary


class Excerpts:
    """Stretches of a text, each with the token before it, from which its first one is predicted.

    That is the <eos> of the line before, or, where the text is cut into blocks of `block` tokens
    without regard to lines (Baevski and Auli 2019), whatever stands there.
    """

    def __init__(self, tokens: np.ndarray, eos: np.ndarray, block: int | None, directory: Path):
        """tokens: <eos>, line, <eos>, line, <eos> ...; eos: where each <eos> stands."""
        last = len(tokens) - 1
        self.tokens, self.directory = tokens, directory
        self.bounds = eos if block is None else np.append(np.arange(0, last, block), last)

    @classmethod
    def of(cls, corpus: Prepared, block: int | None) -> "Excerpts":
        """Of a prepared training split."""
        return cls(corpus.tokens, corpus.bounds, block, corpus.directory)

    @classmethod
    def encode(
        cls, lines: Sequence[str], vocabulary: Vocabulary, block: int | None, directory: Path
    ) -> "Excerpts":
        """Of lines in memory."""
        ids = vocabulary.encode(lines)
        tokens = np.array([EOS, *chain.from_iterable(chain(line, (EOS,)) for line in ids)])
        eos = np.cumsum([0, *(len(line) + 1 for line in ids)])
        return cls(tokens, eos, block, directory)

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def __getitem__(self, i: int) -> np.ndarray:
        """The ids of excerpt i, after the one before it: a view."""
        i = range(len(self))[i]  # IndexError beyond the end; -1 is the last
        start, end = self.bounds[i : i + 2].tolist()
        return self.tokens[start : end + 1]

    def lengths(self, chosen: np.ndarray) -> np.ndarray:
        """Tokens to predict, beside 0 of a source: (n) indices to (n, 2) int64."""
        chosen = np.asarray(chosen, dtype=np.int64)
        target = self.bounds[chosen + 1] - self.bounds[chosen]
        return np.stack([np.zeros_like(target), target], axis=1)

    def batch(self, chosen: Iterable[int]) -> Batch:
        """These excerpts, to train with."""
        return collate_text([self[i] for i in chosen])
