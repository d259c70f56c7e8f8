"""Making a prepared corpus: every line read, a vocabulary learned, the training split encoded."""

import json
import os
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from itertools import chain
from pathlib import Path

import numpy as np

from dynconv.config.files import sha256
from dynconv.errors import UserError
from dynconv.text.corpus import OPENERS, corpus_dir, find_split, stream_lines, stream_parallel
from dynconv.text.prepared import FORMAT, Prepared, is_prepared, open_prepared
from dynconv.text.vocabulary import EOS, Vocabularies, Vocabulary

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
