"""A corpus larger than memory: prepared once, then read memory-mapped by every process.

    prepared.json               what it was made of; size and sha256 of each other file
    bpe.json                    the vocabulary
    train.tokens                ids of source, target, source, target ..., without <eos>
    train.bounds                int64, 2 * pairs + 1 offsets: where each of them starts, and the end
    {valid,test}.{source,target}        the text of the other splits, if there are any

Numbers are little-endian; an id takes two bytes, or four when there are more than 65,536 types.
"""

import json
import os
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path

import numpy as np

from dynconv.errors import UserError
from dynconv.files import sha256
from dynconv.text.bpe import BPE
from dynconv.text.corpus import OPENERS, corpus_dir, find_split, stream_parallel

FORMAT = "dynconv prepared corpus 1"
SAMPLE = 500_000
"""most pairs to learn the vocabulary from: this bounds the memory of learning"""
PROBE = 10_000
"""pairs that tell how many long words there are"""
LONG = 30
"""characters of a word that is most likely new to the learner. Text without spaces (Chinese) has
hardly any other: segment it first, or give `bpe`, for few pairs will be learned from"""
LONG_BYTES = 4_000_000
"""most bytes of long words to learn from"""
CHUNK = 1 << 20
"""characters to encode at a time, or one pair if it is longer"""
SHORT = 1 << 16
"""most types whose ids fit in two bytes"""


@dataclass(frozen=True)
class Prepared:
    """A prepared training split; nothing of it is in memory but the pages that are read."""

    directory: Path
    corpus: str
    source: str
    target: str
    pairs: int
    blank: int
    """pairs left out because a side is blank"""
    source_tokens: int
    target_tokens: int
    vocab_size: int
    dtype: str
    """of an id: uint16 | uint32"""
    files: dict[str, dict]
    """bytes and sha256 of each, by name"""

    @cached_property
    def _tokens(self) -> np.ndarray:
        return _mapped(self.directory / "train.tokens", self.dtype)

    @cached_property
    def _bounds(self) -> np.ndarray:
        return _mapped(self.directory / "train.bounds", "int64")

    def __len__(self) -> int:
        return self.pairs

    def __getitem__(self, i: int) -> tuple[np.ndarray, np.ndarray]:
        """Ids of pair i's source and target, without <eos>: read-only views of the file."""
        i = range(self.pairs)[i]  # IndexError beyond the end; -1 is the last
        start, middle, end = self._bounds[2 * i : 2 * i + 3].tolist()
        return self._tokens[start:middle], self._tokens[middle:end]

    def lengths(self, chosen: np.ndarray) -> np.ndarray:
        """Tokens of source and target, <eos> included: (n) indices of pairs to (n, 2) int64."""
        first = 2 * np.asarray(chosen, dtype=np.int64)
        start, middle, end = (self._bounds[first + k] for k in range(3))
        return np.stack([middle - start, end - middle], axis=1) + 1

    def bpe(self) -> BPE:
        """The vocabulary."""
        return BPE.load(self.directory / "bpe.json")


def _mapped(path: Path, dtype: str) -> np.ndarray:
    # as a plain array: slicing a np.memmap takes several times as long
    return np.asarray(np.memmap(path, np.dtype(dtype).newbyteorder("<"), "r"))


def prepare(
    corpus: str, source: str, target: str, vocab_size: int, out: Path, bpe: Path | None = None
) -> Prepared:
    """Encode the training split of a corpus into a new directory, in bounded memory.

    corpus          as in `load_parallel`; valid and test may be missing
    source, target  languages ("de", "en")
    vocab_size      types to learn from the training split; those of `bpe`, if that is given
    out             it appears under this name only when it is whole
    bpe             a vocabulary to use instead of learning one

    Raises UserError when there is something at `out`, the text cannot be read or has no usable
    pair, the vocabulary has another size, or the disk does not take it.
    """
    out = out.resolve()
    _refuse_existing(out)
    splits = _splits(corpus_dir(corpus), source, target)
    given = bpe and BPE.load(bpe)
    if given and len(given) != vocab_size:
        raise UserError(f"{bpe}: {len(given)} types, not vocab_size {vocab_size}: give that number")
    scratch = out.with_name(out.name + ".part")
    shutil.rmtree(scratch, ignore_errors=True)  # of a preparation that was killed
    try:
        scratch.mkdir(parents=True)
        # Every mistake in the text is found here, before the long part.
        counts = {split: _count(split, paths) for split, paths in splits.items()}
        vocabulary = given or _learn(splits["train"], counts["train"], vocab_size)
        vocabulary.save(scratch / "bpe.json")
        dtype = "uint16" if vocab_size <= SHORT else "uint32"
        tokens, bounds = scratch / "train.tokens", scratch / "train.bounds"
        pairs = _bar(stream_parallel(*splits["train"]), "encode", counts["train"])
        found = _encode(pairs, vocabulary, tokens, bounds, dtype)
        if not found["pairs"]:
            raise UserError(f"{corpus}: no usable pair in split train: all have a blank side")
        _copy_text(splits, (source, target), scratch)
        prepared = Prepared(
            directory=out,
            corpus=corpus,
            source=source,
            target=target,
            blank=counts["train"] - found["pairs"],
            **found,
            vocab_size=vocab_size,
            dtype=dtype,
            files={path.name: _sealed(path) for path in sorted(scratch.iterdir())},
        )
        fields = {k: v for k, v in asdict(prepared).items() if k != "directory"}
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


def _splits(directory: Path, source: str, target: str) -> dict[str, list[Path]]:
    """The two files of each split; one side alone is an error, and so is no training split."""
    splits = {}
    for split in ("train", "valid", "test"):
        names = [f"{split}.{language}" for language in (source, target)]
        here = [directory / (name + suffix) for name in names for suffix in ("", *OPENERS)]
        if split == "train" or any(path.is_file() for path in here):
            splits[split] = [find_split(directory, name) for name in names]
    return splits


def _count(split: str, paths: list[Path]) -> int:
    return sum(1 for _ in _bar(stream_parallel(*paths), f"read {split}", None))


def _bar(pairs: Iterable[tuple[str, str]], what: str, total: int | None) -> Iterable:
    from tqdm import tqdm

    # disable=None: on terminals only
    return tqdm(pairs, what, total, unit=" pairs", unit_scale=True, disable=None)


def _learn(paths: list[Path], pairs: int, vocab_size: int) -> BPE:
    """A vocabulary from some of the pairs, evenly spread over the text."""
    probe = chain.from_iterable(_spread(paths, pairs, PROBE, "probe"))
    words = chain.from_iterable(line.split() for line in probe)
    size = sum(len(word.encode()) for word in words if len(word) > LONG) / min(PROBE, pairs)
    sample = min(SAMPLE, int(LONG_BYTES / size)) if size else SAMPLE
    return BPE.learn(chain.from_iterable(_spread(paths, pairs, sample, "learn")), vocab_size)


def _spread(paths: list[Path], pairs: int, sample: int, what: str) -> Iterator[tuple[str, str]]:
    sample = min(sample, pairs)
    numbered = enumerate(_bar(stream_parallel(*paths), what, pairs))
    return (pair for i, pair in numbered if i * sample // pairs < (i + 1) * sample // pairs)


def _encode(
    pairs: Iterable[tuple[str, str]], bpe: BPE, tokens: Path, bounds: Path, dtype: str
) -> dict[str, int]:
    """Append the ids of all pairs without a blank side; returns their number and the tokens'."""
    lines, end, source_tokens = 0, 0, 0
    with tokens.open("wb") as token_file, bounds.open("wb") as bound_file:
        bound_file.write(np.zeros(1, "<i8"))
        for chunk in _chunks(pairs):
            ids = bpe.encode(chunk)
            lengths = np.fromiter(map(len, ids), np.int64, len(ids))
            flat = np.fromiter(chain.from_iterable(ids), dtype, lengths.sum())
            token_file.write(flat.astype(flat.dtype.newbyteorder("<")))
            bound_file.write((end + lengths.cumsum()).astype("<i8"))
            lines, end = lines + len(ids), end + len(flat)
            source_tokens += int(lengths[::2].sum())
    found = {"source_tokens": source_tokens, "target_tokens": end - source_tokens}
    return {"pairs": lines // 2, **found}


def _chunks(pairs: Iterable[tuple[str, str]]) -> Iterator[list[str]]:
    """Source, target, source, target ... without the blank pairs, CHUNK characters at a time."""
    lines, size = [], 0
    for pair in pairs:
        if all(map(str.strip, pair)):
            lines += pair
            size += sum(map(len, pair))
        if size >= CHUNK:
            yield lines
            lines, size = [], 0
    if lines:
        yield lines


def _copy_text(splits: dict[str, list[Path]], languages: tuple[str, str], to: Path) -> None:
    for split in splits.keys() - {"train"}:
        for path, language in zip(splits[split], languages, strict=True):
            with (
                OPENERS.get(path.suffix, open)(path, "rb") as text,
                (to / f"{split}.{language}").open("wb") as plain,
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
        prepared = Prepared(directory, **fields)
    except TypeError as error:
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
