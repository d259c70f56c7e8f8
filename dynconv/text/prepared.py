"""A corpus larger than memory: prepared once, then read memory-mapped by every process.

    prepared.json               what it was made of; size and sha256 of each other file
    vocabulary.json             the vocabulary, or both
    train.tokens                ids: of source, target, source, target ..., without <eos>; or, for a
                                language model, of <eos>, line, <eos>, line, <eos> ...
    train.bounds                int64 offsets: where each source and each target starts, and the
                                end; or where each <eos> stands
    {valid,test}.{source,target}        the text of the other splits, if there are any

Numbers are little-endian; an id takes two bytes, or four when there are more than 65,536 types.
"""

import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from dynconv.config.files import sha256
from dynconv.errors import UserError
from dynconv.text.batching import Batch, collate
from dynconv.text.vocabulary import Vocabularies

FORMAT = "dynconv prepared corpus 2"


@dataclass(frozen=True)
class Prepared:
    """A prepared training split; nothing of it is in memory but the pages that are read.

    Its pairs are those of a parallel text. A language model reads it through
    `dynconv.text.excerpts`.
    """

    directory: Path
    corpus: str
    source: str | None
    """None: the text of a language model, whose lines count as pairs"""
    target: str
    pairs: int
    blank: int
    """pairs left out because a side is blank"""
    source_tokens: int
    target_tokens: int
    vocab_size: int | tuple[int, int]
    """of both together, or of source and target"""
    kind: str
    """of the vocabulary: bytes | bpe | words"""
    dtype: str
    """of an id: uint16 | uint32"""
    files: dict[str, dict]
    """bytes and sha256 of each, by name"""
    max_source: int = sys.maxsize
    """tokens of a source that are read"""

    @cached_property
    def tokens(self) -> np.ndarray:
        return _mapped(self.directory / "train.tokens", self.dtype)

    @cached_property
    def bounds(self) -> np.ndarray:
        return _mapped(self.directory / "train.bounds", "int64")

    def __len__(self) -> int:
        return self.pairs

    def __getitem__(self, i: int) -> tuple[np.ndarray, np.ndarray]:
        """Ids of pair i's source and target, without <eos>: read-only views of the file."""
        i = range(self.pairs)[i]  # IndexError beyond the end; -1 is the last
        start, middle, end = self.bounds[2 * i : 2 * i + 3].tolist()
        cut = min(middle, start + self.max_source)
        return self.tokens[start:cut], self.tokens[middle:end]

    def lengths(self, chosen: np.ndarray) -> np.ndarray:
        """Tokens of source and target, <eos> included: (n) indices of pairs to (n, 2) int64."""
        first = 2 * np.asarray(chosen, dtype=np.int64)
        start, middle, end = (self.bounds[first + k] for k in range(3))
        source = np.minimum(middle - start, self.max_source)
        return np.stack([source, end - middle], axis=1) + 1

    def batch(self, chosen: Iterable[int]) -> Batch:
        """These pairs, to train with."""
        return collate([self[i] for i in chosen])

    def vocabularies(self) -> Vocabularies:
        """Those it was encoded with."""
        return Vocabularies.load(self.directory / "vocabulary.json")


def _mapped(path: Path, dtype: str) -> np.ndarray:
    # as a plain array: slicing a np.memmap takes several times as long
    return np.asarray(np.memmap(path, np.dtype(dtype).newbyteorder("<"), "r"))


def is_prepared(directory: Path) -> bool:
    """Whether a directory holds a prepared corpus, rather than text."""
    return (directory / "prepared.json").is_file()


def open_prepared(directory: Path, *, verify: bool) -> Prepared:
    """Open what `prepare` made, at once and in no memory, whatever its size.

    verify  read all of it, to compare the checksums

    Raises UserError when it is something else, or a file is missing, truncated or altered.
    """
    meta = directory / "prepared.json"
    try:
        fields = json.loads(meta.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{directory}: no prepared corpus here (it has no prepared.json)") from None
    except (OSError, ValueError) as error:
        raise UserError(f"{meta}: not readable as JSON ({error}): prepare it again") from None
    if not isinstance(fields, dict) or fields.pop("format", None) != FORMAT:
        raise UserError(f"{meta}: not of format {FORMAT!r}: prepare it again")
    try:
        if isinstance(fields["vocab_size"], list):  # JSON has no tuples
            fields["vocab_size"] = tuple(fields["vocab_size"])
        prepared = Prepared(directory, **fields)
    except (TypeError, KeyError) as error:
        raise UserError(f"{meta}: altered ({error}): prepare it again") from None
    for name, recorded in prepared.files.items():
        path = directory / name
        if not path.is_file():
            raise UserError(f"{path}: no such file: prepare it again")
        if (size := path.stat().st_size) != recorded["bytes"]:
            raise UserError(
                f"{path}: {size} bytes, but {recorded['bytes']} were written: prepare it again"
            )
        if verify and sha256(path) != recorded["sha256"]:
            raise UserError(f"{path}: altered, its sha256 is not the recorded: prepare it again")
    return prepared
