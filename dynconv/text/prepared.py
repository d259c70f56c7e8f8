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
import os
import shutil
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path

import numpy as np

from dynconv.errors import UserError
from dynconv.files import sha256
from dynconv.text.batching import Batch, collate
from dynconv.text.corpus import OPENERS, corpus_dir, find_split, stream_lines, stream_parallel
from dynconv.text.vocabulary import EOS, Vocabularies, Vocabulary

FORMAT = "dynconv prepared corpus 2"
SAMPLE = 500_000
"""most pairs to learn the vocabulary from: this bounds the memory of learning"""
PROBE = 10_000
"""pairs that tell how many long words there are"""
LONG = 30
"""characters of a word that is most likely new to the learner. Text without spaces (Chinese) has
hardly any other: segment it first, or give `vocabulary`, for few pairs will be learned from"""
LONG_BYTES = 4_000_000
"""most bytes of long words to learn from"""
CHUNK = 1 << 20
"""characters to encode at a time, or one pair if it is longer"""
SHORT = 1 << 16
"""most types whose ids fit in two bytes"""


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


def prepare(
    corpus: str,
    source: str | None,
    target: str,
    vocab_size: int | tuple[int, int],
    out: Path,
    kind: str = "bytes",
    vocabulary: Path | None = None,
) -> Prepared:
    """Encode the training split of a corpus into a new directory, in bounded memory.

    corpus          as in `load_parallel`; valid and test may be missing
    source, target  languages ("de", "en"); source None: a language model's text
    vocab_size      types to learn from the training split, of both sides together or of each by
                    itself; those of `vocabulary`, if that is given
    out             it appears under this name only when it is whole
    kind            of the vocabulary: see `dynconv.text.vocabulary`
    vocabulary      a file to use instead of learning

    Raises UserError when there is something at `out`, the text cannot be read or has no usable
    pair, the vocabulary has another size, or the disk does not take it.
    """
    out = out.resolve()
    _refuse_existing(out)
    splits = _splits(corpus_dir(corpus), source, target)
    given = vocabulary and Vocabularies.load(vocabulary)
    if given and given.sizes != vocab_size:
        raise UserError(
            f"{vocabulary}: {given.sizes} types, not vocab_size {vocab_size}: give that number"
        )
    scratch = out.with_name(out.name + ".part")
    shutil.rmtree(scratch, ignore_errors=True)  # of a preparation that was killed
    try:
        scratch.mkdir(parents=True)
        # Every mistake in the text is found here, before the long part.
        counts = {split: _count(split, paths) for split, paths in splits.items()}
        vocabularies = given or _learn(splits["train"], counts["train"], vocab_size, kind)
        vocabularies.save(scratch / "vocabulary.json")
        largest = max(map(len, vocabularies))
        dtype = "uint16" if largest <= SHORT else "uint32"
        tokens, bounds = scratch / "train.tokens", scratch / "train.bounds"
        lines = _bar(_stream(splits["train"]), "encode", counts["train"])
        encode = _encode_lines if source is None else _encode_pairs
        found = encode(lines, vocabularies, tokens, bounds, dtype)
        if not found["pairs"]:
            raise UserError(f"{corpus}: no usable pair in split train: all have a blank side")
        _copy_text(splits, [side for side in (source, target) if side], scratch)
        prepared = Prepared(
            directory=out,
            corpus=corpus,
            source=source,
            target=target,
            blank=counts["train"] - found["pairs"],
            **found,
            vocab_size=vocab_size,
            kind=vocabularies.target.kind,
            dtype=dtype,
            files={path.name: _sealed(path) for path in sorted(scratch.iterdir())},
        )
        fields = {k: v for k, v in asdict(prepared).items() if k not in ("directory", "max_source")}
        meta = scratch / "prepared.json"
        meta.write_text(json.dumps({"format": FORMAT, **fields}, indent=1), encoding="utf-8")
        _sealed(meta)
        os.replace(scratch, out)
    except OSError as error:
        raise UserError(f"{out}: cannot write there: {error.strerror or error}") from None
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return open_prepared(out, verify=False)


def _refuse_existing(out: Path) -> None:
    if is_prepared(out):
        raise UserError(f"{out}: a prepared corpus is there: remove it, or give another --out")
    if out.is_dir() and not any(out.iterdir()):
        return
    if out.exists():
        raise UserError(f"{out}: something else is there: give another --out")


def _splits(directory: Path, source: str | None, target: str) -> dict[str, list[Path]]:
    """The files of each split; one side alone is an error, and so is no training split."""
    splits = {}
    for split in ("train", "valid", "test"):
        names = [f"{split}.{side}" for side in (source, target) if side]
        here = [directory / (name + suffix) for name in names for suffix in ("", *OPENERS)]
        if split == "train" or any(path.is_file() for path in here):
            splits[split] = [find_split(directory, name) for name in names]
    return splits


def _stream(paths: list[Path]) -> Iterator[tuple[str, ...]]:
    """Pairs of lines, or the lines of one file as tuples of one."""
    return stream_parallel(*paths) if len(paths) == 2 else zip(stream_lines(*paths), strict=True)


def _count(split: str, paths: list[Path]) -> int:
    return sum(1 for _ in _bar(_stream(paths), f"read {split}", None))


def _bar(pairs: Iterable[tuple[str, ...]], what: str, total: int | None) -> Iterable:
    from tqdm import tqdm

    # disable=None: on terminals only
    return tqdm(pairs, what, total, unit=" lines", unit_scale=True, disable=None)


def _learn(
    paths: list[Path], lines: int, vocab_size: int | tuple[int, int], kind: str
) -> Vocabularies:
    """Vocabularies from the training text: one of all sides, or one of each."""
    if isinstance(vocab_size, int):
        both = Vocabulary.learn(_sample(paths, lines, kind), vocab_size, kind)
        return Vocabularies(both, both)
    learned, mistakes = [], []
    for path, size in zip(paths, vocab_size, strict=True):
        try:
            learned.append(Vocabulary.learn(_sample([path], lines, kind), size, kind))
        except UserError as error:
            mistakes.append(f"{path.name}: {error}")
    if mistakes:  # of both sides, since learning takes its time
        raise UserError("; ".join(mistakes))
    return Vocabularies(*learned)


def _sample(paths: list[Path], lines: int, kind: str) -> Iterator[str]:
    """Some of the text, evenly spread over it; all, to count words."""
    if kind == "words":
        return chain.from_iterable(_spread(paths, lines, lines, "learn"))
    probe = chain.from_iterable(_spread(paths, lines, PROBE, "probe"))
    words = chain.from_iterable(line.split() for line in probe)
    size = sum(len(word.encode()) for word in words if len(word) > LONG) / min(PROBE, lines)
    sample = min(SAMPLE, int(LONG_BYTES / size)) if size else SAMPLE
    return chain.from_iterable(_spread(paths, lines, sample, "learn"))


def _spread(paths: list[Path], lines: int, sample: int, what: str) -> Iterator[tuple[str, ...]]:
    sample = min(sample, lines)
    numbered = enumerate(_bar(_stream(paths), what, lines))
    return (pair for i, pair in numbered if i * sample // lines < (i + 1) * sample // lines)


def _encode_pairs(
    pairs: Iterable[tuple[str, str]],
    vocabularies: Vocabularies,
    tokens: Path,
    bounds: Path,
    dtype: str,
) -> dict[str, int]:
    """Append the ids of all pairs without a blank side; returns their number and the tokens'."""
    lines, end, source_tokens = 0, 0, 0
    full = (pair for pair in pairs if all(map(str.strip, pair)))
    with tokens.open("wb") as token_file, bounds.open("wb") as bound_file:
        bound_file.write(np.zeros(1, "<i8"))
        for chunk in _chunks(full):
            sides = (
                v.encode(side)
                for v, side in zip(vocabularies, zip(*chunk, strict=True), strict=True)
            )
            ids = list(chain.from_iterable(zip(*sides, strict=True)))
            lengths = np.fromiter(map(len, ids), np.int64, len(ids))
            _append(token_file, chain.from_iterable(ids), lengths.sum(), dtype)
            bound_file.write((end + lengths.cumsum()).astype("<i8"))
            lines, end = lines + len(chunk), end + int(lengths.sum())
            source_tokens += int(lengths[::2].sum())
    found = {"source_tokens": source_tokens, "target_tokens": end - source_tokens}
    return {"pairs": lines, **found}


def _encode_lines(
    text: Iterable[tuple[str]],
    vocabularies: Vocabularies,
    tokens: Path,
    bounds: Path,
    dtype: str,
) -> dict[str, int]:
    """Append the ids of all lines, blank ones too, each between <eos>."""
    lines, end = 0, 0
    with tokens.open("wb") as token_file, bounds.open("wb") as bound_file:
        _append(token_file, [EOS], 1, dtype)
        bound_file.write(np.zeros(1, "<i8"))
        for chunk in _chunks(text):
            ids = vocabularies.target.encode([line for (line,) in chunk])
            lengths = np.fromiter(map(len, ids), np.int64, len(ids)) + 1
            stream = chain.from_iterable(chain(line, (EOS,)) for line in ids)
            _append(token_file, stream, lengths.sum(), dtype)
            bound_file.write((end + lengths.cumsum()).astype("<i8"))
            lines, end = lines + len(chunk), end + int(lengths.sum())
    return {"pairs": lines, "source_tokens": 0, "target_tokens": end - lines}


def _append(file, ids: Iterable[int], count: int, dtype: str) -> None:
    flat = np.fromiter(ids, dtype, count)
    file.write(flat.astype(flat.dtype.newbyteorder("<")))


def _chunks(lines: Iterable[tuple[str, ...]]) -> Iterator[list[tuple[str, ...]]]:
    """Pairs or lines, CHUNK characters at a time."""
    chunk, size = [], 0
    for line in lines:
        chunk.append(line)
        size += sum(map(len, line))
        if size >= CHUNK:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _copy_text(splits: dict[str, list[Path]], languages: list[str], to: Path) -> None:
    """The other splits as they are, with further references (test.summary1, 2 ...)."""
    for split in splits.keys() - {"train"}:
        for path, language in zip(splits[split], languages, strict=True):
            name = f"{split}.{language}"
            for each in [path, *path.parent.glob(f"{name}[0-9]*")]:
                with (
                    OPENERS.get(each.suffix, open)(each, "rb") as text,
                    (to / (name if each == path else each.name)).open("wb") as plain,
                ):
                    shutil.copyfileobj(text, plain)


def _sealed(path: Path) -> dict[str, int | str]:
    """Bytes and sha256 of a file that has been forced to the disk."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
    return {"bytes": path.stat().st_size, "sha256": sha256(path)}


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
