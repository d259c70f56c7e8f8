"""Opens prepared corpora, which are encoded once and then memory-mapped by every process.

    prepared.json               settings; size and sha256 of each other file
    vocabulary.json             the joint vocabulary, or one per side
    train.tokens                the ids of source, target, source, target ..., without <eos>; or,
                                for a language model, of <eos>, line, <eos>, line, <eos> ...
    train.bounds                int64 offsets of each source and each target, and of the end; or of
                                each <eos>
    {valid,test}.{source,target}        the text of the other splits, if any

Numbers are little-endian; an id takes two bytes, or four when there are more than 65,536 types.
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np
from typing_extensions import TypedDict

from dynconv.choices import VocabularyKind
from dynconv.errors import UserError
from dynconv.files import read_json, sha256
from dynconv.schema import Count, PositiveInt, validated_content
from dynconv.text.corpus import corpus_dir
from dynconv.text.vocabulary import Vocabularies, per_side
from dynconv.yaml12 import as_override

CORPUS_FORMAT = "dynconv prepared corpus 2"
CORPUS_META = "prepared.json"
VOCABULARY = "vocabulary.json"
TOKENS = "train.tokens"
BOUNDS = "train.bounds"
REMEDY = "prepare it again"
"""the remedy that errors in a prepared corpus name"""
FIELD_NAMES = {"kind": "vocabulary_kind", "pairs": "lines"}
"""fields of `PreparedCorpus` by their keys in prepared.json, where these differ; version 0.1 wrote
`pairs`"""
SIDES_PER_CHECK = 1 << 20
"""the number of sides that `check_ids` reads at once; an odd one would split a pair"""


class PreparedFile(TypedDict):
    """What prepared.json records about another file."""

    bytes: Count
    sha256: str


@dataclass(frozen=True)
class PreparedCorpus:
    """A prepared training split; only the pages that are read are in memory.

    Training reads it as `Pairs`, or, for a language model, as `Excerpts`.
    """

    directory: Path
    corpus: str
    source: str | None
    """the suffix of the source; None for the text of a language model"""
    target: str
    lines: Count
    """lines of each side"""
    blank: Count
    """lines left out because a side is blank"""
    source_tokens: Count
    target_tokens: Count
    vocab_size: PositiveInt | tuple[PositiveInt, PositiveInt]
    """types of both sides together, or of source and target"""
    vocabulary_kind: VocabularyKind
    """kind of the vocabulary; prepared.json calls it `kind`"""
    dtype: Literal["uint16", "uint32"]
    """type of an id"""
    files: dict[str, PreparedFile]
    """the corpus's files, keyed by name"""

    @property
    def side_count(self) -> int:
        """The number of sides of each example: two, or one of the text of a language model."""
        return 1 if self.source is None else 2

    @cached_property
    def tokens(self) -> np.ndarray:
        """The ids in train.tokens as a memory-mapped array."""
        return memory_map(self.directory / TOKENS, self.dtype)

    @cached_property
    def bounds(self) -> np.ndarray:
        """The offsets in train.bounds as a memory-mapped array."""
        return memory_map(self.directory / BOUNDS, "int64")

    def load_vocabularies(self) -> Vocabularies:
        """Load the vocabularies of the corpus."""
        return Vocabularies.load(self.directory / VOCABULARY)


def memory_map(path: Path, dtype: str) -> np.ndarray:
    # As a plain array: slicing a np.memmap takes several times as long.
    return np.asarray(np.memmap(path, np.dtype(dtype).newbyteorder("<"), "r"))


def is_prepared(directory: Path) -> bool:
    """Return whether a directory contains a prepared corpus."""
    return (directory / CORPUS_META).is_file()


def find_prepared(corpus: str) -> Path | None:
    """Return the directory that `data.corpus` names, if it contains a prepared corpus.

    None means a text that is to be encoded, or nothing at all; `corpus_dir` tells these apart.
    """
    try:
        directory = corpus_dir(corpus)
    except UserError:
        return None
    return directory if is_prepared(directory) else None


def foreign_files(directory: Path) -> list[Path]:
    """Return what `encode_corpus` would not have written: files, or an empty directory itself."""
    paths = sorted(directory.iterdir())
    if not is_prepared(directory):
        return paths or [directory]
    ours = {CORPUS_META, VOCABULARY, TOKENS, BOUNDS}
    return [p for p in paths if p.name not in ours and not p.name.startswith(("valid.", "test."))]


def open_prepared(directory: Path, *, verify: bool) -> PreparedCorpus:
    """Open a prepared corpus without reading it into memory.

    verify  also compare the contents of all files with their checksums

    Raises UserError if it is not a prepared corpus, or a file is missing, truncated or altered.
    """
    meta = directory / CORPUS_META
    try:
        tree = read_json(meta, REMEDY)
    except FileNotFoundError:
        raise UserError(f"{directory}: no prepared corpus here (it has no {CORPUS_META})") from None
    if not isinstance(tree, dict) or tree.pop("format", None) != CORPUS_FORMAT:
        raise UserError(f"{meta}: not of format {CORPUS_FORMAT!r}: {REMEDY}")
    tree = {FIELD_NAMES.get(key, key): value for key, value in tree.items()}
    prepared = validated_content(PreparedCorpus, {**tree, "directory": directory}, meta, REMEDY)
    check_counts(prepared)
    for name, recorded in prepared.files.items():
        path = directory / name
        if not path.is_file():
            raise UserError(f"{path}: no such file: {REMEDY}")
        if (size := path.stat().st_size) != recorded["bytes"]:
            raise UserError(f"{path}: {size} bytes, but {recorded['bytes']} were written: {REMEDY}")
        if verify and sha256(path) != recorded["sha256"]:
            raise UserError(f"{path}: altered, its sha256 differs from the recorded one: {REMEDY}")
    if verify:
        check_ids(prepared)
    return prepared


def check_counts(corpus: PreparedCorpus) -> None:
    """Raise UserError if the counts in prepared.json contradict each other."""
    sizes = {name: file["bytes"] for name, file in corpus.files.items()}
    tokens = corpus.source_tokens + corpus.target_tokens
    if corpus.side_count == 1:
        tokens += corpus.lines + 1  # an <eos> after each line, and one before the first
    expected = {
        TOKENS: np.dtype(corpus.dtype).itemsize * tokens,
        BOUNDS: 8 * (corpus.side_count * corpus.lines + 1),
        VOCABULARY: sizes.get(VOCABULARY, 0),
    }
    for name, size in expected.items():
        if sizes.get(name) != size:
            raise UserError(
                f"{corpus.directory / CORPUS_META}: altered: {name} has {sizes.get(name)} "
                f"bytes, not the {size} of these counts and dtype: {REMEDY}"
            )


def check_ids(corpus: PreparedCorpus) -> None:
    """Read all ids, in bounded memory. Raises UserError if one is not in the vocabulary."""
    count = corpus.side_count
    sizes = per_side(corpus.vocab_size)[-count:]  # a language model's text has only the target
    tokens, bounds = corpus.tokens, corpus.bounds
    problem = None
    for start in range(0, len(bounds) - 1, SIDES_PER_CHECK):
        cuts = bounds[start : start + SIDES_PER_CHECK + 1]
        if cuts[0] < 0 or cuts[-1] > len(tokens) or (np.diff(cuts) <= 0).any():
            problem = f"{BOUNDS}: not increasing offsets into {TOKENS}"
            break
        largest = np.maximum.reduceat(tokens[cuts[0] : cuts[-1]], cuts[:-1] - cuts[0])
        for side in range(count):
            if (found := int(largest[side::count].max())) >= sizes[side]:
                size = as_override(corpus.vocab_size)
                problem = f"{TOKENS}: has id {found}, beyond vocab_size {size}"
    if problem:
        raise UserError(f"{corpus.directory}/{problem}: {REMEDY}")
