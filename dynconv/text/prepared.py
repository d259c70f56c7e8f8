"""Prepared corpora: encoded once, then memory-mapped by every process, so of any size.

    prepared.json               what it was made from; size and sha256 of each other file
    vocabulary.json             the vocabulary, or that of each side
    train.tokens                the ids of source, target, source, target ..., without <eos>; or,
                                for a language model, of <eos>, line, <eos>, line, <eos> ...
    train.bounds                int64 offsets of each source and each target, and of the end; or of
                                each <eos>
    {valid,test}.{source,target}        the text of the other splits, if there are any

Numbers are little-endian; an id takes two bytes, or four when there are more than 65,536 types.
"""

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from dynconv.config.files import sha256
from dynconv.errors import UserError
from dynconv.text.vocabulary import Vocabularies

FORMAT = "dynconv prepared corpus 2"


@dataclass(frozen=True)
class Prepared:
    """A prepared training split, of which only the pages that are read are in memory.

    Training reads it as `Pairs`, or, for a language model, as `Excerpts`.
    """

    directory: Path
    corpus: str
    source: str | None
    """None for the text of a language model, whose lines are counted as pairs"""
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

    @cached_property
    def tokens(self) -> np.ndarray:
        """Return the ids of train.tokens, read from the disk when they are used."""
        return _memory_map(self.directory / "train.tokens", self.dtype)

    @cached_property
    def bounds(self) -> np.ndarray:
        """Return the offsets of train.bounds, likewise."""
        return _memory_map(self.directory / "train.bounds", "int64")

    def vocabularies(self) -> Vocabularies:
        """Load the vocabularies that it was encoded with."""
        return Vocabularies.load(self.directory / "vocabulary.json")


def _memory_map(path: Path, dtype: str) -> np.ndarray:
    # as a plain array: slicing a np.memmap takes several times as long
    return np.asarray(np.memmap(path, np.dtype(dtype).newbyteorder("<"), "r"))


def is_prepared(directory: Path) -> bool:
    """Return whether a directory contains a prepared corpus, not text."""
    return (directory / "prepared.json").is_file()


def open_prepared(directory: Path, *, verify: bool) -> Prepared:
    """Open what `prepare` has written; this takes neither time nor memory, whatever its size.

    Raises UserError when it is something else, or a file is missing, truncated or altered; the
    contents are compared with the recorded checksums only to `verify` them.
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
