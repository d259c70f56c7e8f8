"""What models are trained on and validated with: pairs of sentences, or excerpts of a text."""

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from dynconv.text.batching import Batch, Pair, collate_excerpts, collate_pairs
from dynconv.text.prepared import PreparedCorpus
from dynconv.text.vocabulary import EOS, Vocabularies, Vocabulary


@dataclass(eq=False)
class Examples(ABC):
    """Examples stored one after another in an array of ids, in memory or memory-mapped."""

    tokens: np.ndarray
    bounds: np.ndarray
    """int64 offsets into the tokens: `side_count` per example, then the end of the last"""
    directory: Path | None = None
    """the prepared corpus, for error messages"""

    side_count: ClassVar[int]
    collate: ClassVar[Callable]

    @abstractmethod
    def __getitem__(self, i: int) -> Any:
        """Return the ids of example i, as views."""

    @abstractmethod
    def lengths(self, indices: Iterable[int] | np.ndarray) -> np.ndarray:
        """Count the tokens of source and target: (N,) indices to (N, 2) int64."""

    @abstractmethod
    def as_text(self, i: int, vocabularies: Vocabularies) -> dict[str, str]:
        """Return example i as text, by side."""

    def __len__(self) -> int:
        return (len(self.bounds) - 1) // self.side_count

    def offsets(self, i: int) -> list[int]:
        """Return the offsets of example i, one per side, and its end."""
        first = self.side_count * range(len(self))[i]  # IndexError beyond the end; -1 is the last
        return self.bounds[first : first + self.side_count + 1].tolist()

    def first_bounds(self, indices: Iterable[int] | np.ndarray) -> np.ndarray:
        """Return where the bounds of these examples begin: (N,) int64. Indices as in a list."""
        given = np.asarray(indices, dtype=np.int64)
        total = len(self)
        if ((given < -total) | (given >= total)).any():
            raise IndexError(f"an index is outside of the {total} examples")
        return self.side_count * np.where(given < 0, given + total, given)

    def batch(self, indices: Iterable[int]) -> Batch:
        """Collate the examples of these indices into a batch."""
        return self.collate([self[i] for i in indices])


@dataclass(eq=False)
class Pairs(Examples):
    """Sentence pairs: the ids of source, target, source, target ..., without <eos>."""

    max_source_tokens: int = sys.maxsize
    """maximum number of tokens of a source, with <eos>; longer ones are truncated"""

    side_count, collate = 2, staticmethod(collate_pairs)

    @classmethod
    def from_corpus(cls, corpus: PreparedCorpus, max_source_tokens: int = sys.maxsize) -> "Pairs":
        """Return the pairs of a prepared training split, memory-mapped."""
        return cls(corpus.tokens, corpus.bounds, corpus.directory, max_source_tokens)

    @classmethod
    def from_ids(cls, pairs: Iterable[Pair], max_source_tokens: int = sys.maxsize) -> "Pairs":
        """Return pairs of ids that are in memory."""
        sides = [np.asarray(ids, np.int64) for ids in chain.from_iterable(pairs)]
        bounds = np.cumsum([0, *map(len, sides)])
        return cls(np.concatenate(sides), bounds, max_source_tokens=max_source_tokens)

    def __getitem__(self, i: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the source and target of pair i as views."""
        start, middle, end = self.offsets(i)
        last = min(middle, start + self.max_source_tokens - 1)
        return self.tokens[start:last], self.tokens[middle:end]

    def lengths(self, indices: Iterable[int] | np.ndarray) -> np.ndarray:
        """Count the tokens of source and target, <eos> included: (N,) indices to (N, 2) int64."""
        first = self.first_bounds(indices)
        start, middle, end = (self.bounds[first + k] for k in range(3))
        source = np.minimum(middle - start + 1, self.max_source_tokens)
        return np.stack([source, end - middle + 1], axis=1)

    def as_text(self, i: int, vocabularies: Vocabularies) -> dict[str, str]:
        source, target = (v.decode(ids) for v, ids in zip(vocabularies, self[i], strict=True))
        return {"source": source, "target": target}


class Excerpts(Examples):
    """Excerpts of a text for a language model, each preceded by one token of context.

    Without `block`, each line is an excerpt, after the <eos> of the line before. Otherwise the text
    is cut into blocks of `block` tokens, regardless of its lines (Baevski and Auli 2019).
    """

    side_count = 1
    collate = staticmethod(collate_excerpts)

    @classmethod
    def from_corpus(cls, corpus: PreparedCorpus, block: int | None) -> "Excerpts":
        """Return the excerpts of a prepared training split."""
        return cls(corpus.tokens, excerpt_bounds(corpus.bounds, block), corpus.directory)

    @classmethod
    def from_lines(
        cls, lines: Sequence[str], vocabulary: Vocabulary, block: int | None
    ) -> "Excerpts":
        """Encode lines of text."""
        ids = vocabulary.encode(lines)
        tokens = np.array([EOS, *chain.from_iterable(chain(line, (EOS,)) for line in ids)])
        return cls(tokens, excerpt_bounds(np.cumsum([0, *(len(line) + 1 for line in ids)]), block))

    def __getitem__(self, i: int) -> np.ndarray:
        """Return the id before excerpt i, then the excerpt's ids, as a view."""
        start, end = self.offsets(i)
        return self.tokens[start : end + 1]

    def lengths(self, indices: Iterable[int] | np.ndarray) -> np.ndarray:
        """Count 0 source tokens and the tokens to predict: (N,) indices to (N, 2) int64."""
        first = self.first_bounds(indices)
        target = self.bounds[first + 1] - self.bounds[first]
        return np.stack([np.zeros_like(target), target], axis=1)

    def as_text(self, i: int, vocabularies: Vocabularies) -> dict[str, str]:
        return {"text": vocabularies.target.decode(self[i])}


def excerpt_bounds(eos: np.ndarray, block: int | None) -> np.ndarray:
    """Return where excerpts begin and the last one ends, from the positions of each <eos>."""
    return eos if block is None else np.append(np.arange(0, eos[-1], block), eos[-1])
