"""Encodes a corpus: learns a vocabulary, and writes the training split as token ids."""

import json
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, product
from pathlib import Path
from typing import Any

import numpy as np

from dynconv.choices import VocabularyKind
from dynconv.errors import UserError
from dynconv.files import disk_errors, scratch_folder, sha256, sync
from dynconv.text.corpus import (
    SPLITS,
    check_suffix,
    corpus_dir,
    find_split,
    require_references,
    require_split,
)
from dynconv.text.lines import OPENERS, Row, stream_parallel
from dynconv.text.prepared import (
    BOUNDS,
    CORPUS_FORMAT,
    CORPUS_META,
    TOKENS,
    VOCABULARY,
    PreparedCorpus,
    is_prepared,
    open_prepared,
)
from dynconv.text.vocabulary import DEFAULT_KIND, EOS, Vocabularies, Vocabulary
from dynconv.yaml12 import as_override

MAX_SAMPLED_ROWS = 500_000
"""maximum pairs from which the vocabulary is learned, to bound memory"""
PROBED_ROWS = 10_000
"""pairs from which the number of long words is estimated"""
LONG_WORD = 30
"""characters above which a word is long. Most long words are unique, and the learner keeps them all
in memory. Text without spaces, such as Chinese, should be segmented first, or given a vocabulary to
`reuse`"""
MAX_LONG_BYTES = 4_000_000
"""maximum bytes of long words from which the vocabulary is learned, to bound memory"""
CHARACTERS_PER_CHUNK = 1 << 20
"""characters that are encoded at a time, rounded up to whole pairs"""
MAX_UINT16_TYPES = 1 << 16
"""maximum number of types for ids of two bytes"""


def encode_corpus(
    corpus: str,
    source: str | None,
    target: str,
    vocab_size: int | tuple[int, int],
    out: Path,
    kind: VocabularyKind = DEFAULT_KIND,
    reuse: Path | None = None,
) -> PreparedCorpus:
    """Encode the training split of a corpus into a new directory, in bounded memory.

    corpus          a name or directory, as for `load_parallel`; valid and test may be missing
    source, target  suffixes ("de", "en"); source is None for the text of a language model
    vocab_size      number of types: one for a joint vocabulary, or a pair for source and target
    out             the new directory; it is created under a temporary name, and renamed at the end
    kind            kind of vocabulary, see `dynconv.text.tokenizer_kinds`
    reuse           a vocabulary file to use instead of learning one; its size is vocab_size

    Raises UserError if `out` exists, the text cannot be read or has no usable pair, the vocabulary
    has another size, or the disk cannot be written.
    """
    out = Path(os.path.realpath(out))
    check_free(out)
    suffixes = [suffix for suffix in (source, target) if suffix is not None]
    for suffix in suffixes:
        check_suffix(suffix)
    directory = corpus_dir(corpus)
    splits = require_splits(directory, suffixes)
    given = reuse and load_vocabularies(reuse, vocab_size)
    part = out.with_name(f".{out.name}.part")
    with disk_errors(out, "name another directory"), scratch_folder(part) as folder:
        (scratch := folder / out.name).mkdir()
        train, total = splits["train"], count_rows(splits)["train"]
        vocabularies = given or learn_vocabularies(train, total, vocab_size, kind)
        vocabularies.save(scratch / VOCABULARY)
        dtype = "uint16" if max(map(len, vocabularies)) <= MAX_UINT16_TYPES else "uint32"
        rows = read_rows(train, "encode", total)
        if len(suffixes) == 2:
            rows = (row for row in rows if all(map(str.strip, row)))
        lines, tokens = write_ids(rows, vocabularies[-len(suffixes) :], scratch, dtype)
        if not lines:
            raise UserError(f"{corpus}: no usable pair in split train: all have a blank side")
        for split, suffix in product(splits.keys() - {"train"}, suffixes):
            copy_text(directory, f"{split}.{suffix}", scratch)
        write_meta(
            scratch,
            corpus=corpus,
            source=source,
            target=target,
            lines=lines,
            blank=total - lines,
            source_tokens=sum(tokens[:-1]),
            target_tokens=tokens[-1],
            vocab_size=vocab_size,
            kind=vocabularies.target.kind,
            dtype=dtype,
        )
        os.replace(scratch, out)
    return open_prepared(out, verify=False)


def write_meta(directory: Path, **fields: Any) -> None:
    """Write prepared.json: these entries, and each file's size and checksum."""
    files = {path.name: sync_file(path) for path in sorted(directory.iterdir())}
    meta = directory / CORPUS_META
    meta.write_text(
        json.dumps(dict(format=CORPUS_FORMAT, **fields, files=files), indent=1), "utf-8"
    )
    sync_file(meta)


def check_free(out: Path) -> None:
    """Raise UserError if there is something at `out`, other than an empty directory."""
    if is_prepared(out):
        raise UserError(f"{out}: already a prepared corpus: remove it, or name another directory")
    if os.path.lexists(out) and not (out.is_dir() and not any(out.iterdir())):
        raise UserError(f"{out}: already exists: move it, or name another directory")


def load_vocabularies(path: Path, vocab_size: int | tuple[int, int]) -> Vocabularies:
    """Load vocabularies to use again. Raises UserError if they are not of this size."""
    vocabularies = Vocabularies.load(path)
    if vocabularies.vocab_size != vocab_size:
        sizes, asked = as_override(vocabularies.vocab_size), as_override(vocab_size)
        raise UserError(f"{path}: {sizes} types, not vocab_size {asked}: give {sizes}")
    return vocabularies


def require_splits(directory: Path, suffixes: Sequence[str]) -> dict[str, list[Path]]:
    """Find the files of each split.

    Raises UserError if train, or one side of a split, is missing.
    """
    splits = {}
    for split in SPLITS:
        names = [f"{split}.{suffix}" for suffix in suffixes]
        if split == "train" or any(find_split(directory, name) for name in names):
            splits[split] = [require_split(directory, name) for name in names]
    return splits


def count_rows(splits: dict[str, list[Path]]) -> dict[str, int]:
    """Return the number of rows of each split.

    This also finds every error in the text, before a vocabulary is learned.
    """
    return {
        split: sum(1 for _ in read_rows(paths, f"read {split}")) for split, paths in splits.items()
    }


def read_rows(paths: list[Path], what: str, total: int | None = None) -> Iterable[Row]:
    """Yield the rows of a split, with a progress bar on terminals."""
    from tqdm import tqdm

    rows = stream_parallel(*paths)
    return tqdm(rows, what, total, unit=" lines", unit_scale=True, disable=None)


def learn_vocabularies(
    paths: list[Path], lines: int, vocab_size: int | tuple[int, int], kind: VocabularyKind
) -> Vocabularies:
    """Learn a joint vocabulary of the training text, or one per side."""
    if isinstance(vocab_size, int):
        joint = Vocabulary.learn(sample_lines(paths, lines, kind), vocab_size, kind)
        return Vocabularies(joint, joint)
    learned, errors = [], []
    for path, size in zip(paths, vocab_size, strict=True):
        try:
            learned.append(Vocabulary.learn(sample_lines([path], lines, kind), size, kind))
        except UserError as error:
            errors.append(f"{path.name}: {error}")
    if errors:  # report both at once, because learning takes long
        raise UserError("; ".join(errors))
    return Vocabularies(*learned)


def sample_lines(paths: list[Path], lines: int, kind: VocabularyKind) -> Iterator[str]:
    """Sample lines evenly over the text to learn from; for kind words, yield all lines."""
    if kind == "words":
        return chain.from_iterable(spread_rows(paths, lines, lines, "learn"))
    probe = chain.from_iterable(spread_rows(paths, lines, PROBED_ROWS, "probe"))
    words = (word for line in probe for word in line.split())
    size = sum(len(word.encode()) for word in words if len(word) > LONG_WORD)
    per_row = size / min(PROBED_ROWS, lines)
    sample = min(MAX_SAMPLED_ROWS, int(MAX_LONG_BYTES / per_row)) if size else MAX_SAMPLED_ROWS
    return chain.from_iterable(spread_rows(paths, lines, sample, "learn"))


def spread_rows(paths: list[Path], lines: int, sample: int, what: str) -> Iterator[Row]:
    """Yield `sample` of the rows, evenly spread over all `lines`."""
    sample = min(sample, lines)
    numbered = enumerate(read_rows(paths, what, lines))
    return (row for i, row in numbered if i * sample // lines < (i + 1) * sample // lines)


def iter_chunks(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Yield lists of rows, each of about CHARACTERS_PER_CHUNK in total."""
    chunk, size = [], 0
    for row in rows:
        chunk.append(row)
        size += sum(map(len, row))
        if size >= CHARACTERS_PER_CHUNK:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def write_ids(
    rows: Iterable[Row], vocabularies: Sequence[Vocabulary], scratch: Path, dtype: str
) -> tuple[int, list[int]]:
    """Encode rows into train.tokens and train.bounds.

    Returns how many rows there are, and the number of tokens on each side, without <eos>.
    """
    eos = [EOS] if len(vocabularies) == 1 else []  # separates the lines of a language model
    id_type = np.dtype(dtype).newbyteorder("<")
    count = 0
    end = 0
    side_tokens = np.zeros(len(vocabularies), np.int64)
    paths = scratch / TOKENS, scratch / BOUNDS
    with paths[0].open("wb") as tokens, paths[1].open("wb") as bounds:
        tokens.write(np.array(eos, id_type).data)
        bounds.write(np.zeros(1, "<i8").data)
        for chunk in iter_chunks(rows):
            texts = zip(*chunk, strict=True)
            sides = [v.encode(text) for v, text in zip(vocabularies, texts, strict=True)]
            ids = [[*line, *eos] for row in zip(*sides, strict=True) for line in row]
            lengths = np.array([len(line) for line in ids], np.int64)
            tokens.write(np.fromiter(chain.from_iterable(ids), id_type, lengths.sum()).data)
            bounds.write((end + lengths.cumsum()).astype("<i8").data)
            count, end = count + len(chunk), end + int(lengths.sum())
            side_tokens += lengths.reshape(-1, len(sides)).sum(0) - len(eos) * len(chunk)
    return count, side_tokens.tolist()


def copy_text(directory: Path, name: str, to: Path) -> None:
    """Copy one side of a split, `name` ("test.summary"), with all references if it has several."""
    for file in require_references(directory, name):
        copy = to / (file.stem if file.suffix in OPENERS else file.name)
        with OPENERS.get(file.suffix, open)(file, "rb") as text, copy.open("wb") as plain:
            shutil.copyfileobj(text, plain)


def sync_file(path: Path) -> dict[str, int | str]:
    """Force a file to the disk and return its size in bytes and its sha256."""
    sync(path)
    return {"bytes": path.stat().st_size, "sha256": sha256(path)}
