"""Finds corpora, shipped ones or your own, and reads their lines."""

import codecs
import gzip
import lzma
import zlib
from collections.abc import Callable, Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from dynconv.errors import UserError, nearest, quoted
from dynconv.files import unreadable
from dynconv.paths import data_dir
from dynconv.text.manifest import read_manifest

OPENERS: dict[str, Callable[..., Any]] = {".xz": lzma.open, ".gz": gzip.open}

MAX_LINE_BYTES = 1_000_000
"""maximum bytes of a line, which bounds memory even if a file is not text"""
MAX_WORD_BYTES = 10_000
"""maximum bytes of a word: the time to learn a vocabulary grows with its square"""

Row = tuple[str, ...]
"""one line of each side of a corpus"""


class NotPreparedError(UserError):
    """Raised for a corpus of the manifest that `dynconv data` can fetch and prepare."""


class ParallelText(NamedTuple):
    """A parallel text: line i of `target` translates line i of `source`."""

    source: list[str]
    target: list[str]


def read_lines(path: Path, may_be_empty: bool = False) -> list[str]:
    """Read the lines of a UTF-8 file, plain, .xz or .gz.

    A line ends at "\\n" or "\\r\\n". Other separators (U+2028, form feed) are part of the text,
    because splitting there would shift one side of a parallel text. A byte-order mark is dropped.

    Raises UserError for an empty file, unless it `may_be_empty`.
    """
    return list(stream_lines(path, may_be_empty))


def stream_lines(path: Path, may_be_empty: bool = False) -> Iterator[str]:
    """Yield the lines that `read_lines` returns, one at a time."""
    empty = True
    try:
        with OPENERS.get(path.suffix, open)(path, "rb") as file:
            for line in decode_utf8(file, str(path)):
                empty = False
                yield line
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except (EOFError, lzma.LZMAError, zlib.error, gzip.BadGzipFile) as error:
        raise UserError(f"{path}: truncated or corrupt {path.suffix} file: {error}") from None
    except OSError as error:
        raise unreadable(path, error) from None
    if empty and not may_be_empty:
        raise UserError(f"{path}: the file is empty")


def decode_utf8(file: BinaryIO, name: str) -> Iterator[str]:
    """Decode the lines of an open binary file as `read_lines` does; `name` is for errors.

    Raises UserError for a line or a word that is too long.
    """
    for number, line in enumerate(iter(lambda: file.readline(MAX_LINE_BYTES + 1), b""), 1):
        if len(line) > MAX_LINE_BYTES:
            raise UserError(
                f"{name}, line {number}: longer than {MAX_LINE_BYTES:,} bytes: break it into lines"
            )
        if len(line) > MAX_WORD_BYTES and len(max(line.split(), key=len)) > MAX_WORD_BYTES:
            raise UserError(
                f"{name}, line {number}: a word of more than {MAX_WORD_BYTES:,} bytes: put spaces "
                "into it, or leave it out"
            )
        if number == 1:
            line = line.removeprefix(codecs.BOM_UTF8)
        if not line:  # the file is a byte-order mark and nothing else
            return
        try:
            yield line.decode("utf-8").removesuffix("\n").removesuffix("\r")
        except UnicodeDecodeError as error:
            raise UserError(f"{name}, line {number}: not valid UTF-8 ({error.reason})") from None


def corpus_dir(corpus: str) -> Path:
    """Return the directory of a corpus, given its path or the name of a shipped one.

    The name of a shipped corpus always means that one: a directory of the same name in the working
    directory is `./NAME`. `corpus_dir(str(directory))` of the result is the same directory.

    Raises NotPreparedError for a corpus of the manifest that is not prepared yet, else UserError.
    """
    if not corpus:
        raise UserError("the name of the corpus is empty: dynconv data list shows the known ones")
    shipped = {file.parent.name: file.parent for file in sorted(data_dir().glob("*/train.*.xz"))}
    if corpus in shipped:
        return shipped[corpus]
    if (path := Path(corpus)).is_dir():
        return path.absolute() if str(path) in shipped else path
    others = [name for name in read_manifest() if name not in shipped]
    if any(f"{Path(corpus).name}-".startswith(f"{name}-") for name in others):
        raise NotPreparedError(
            f"no directory {corpus}; dynconv data fetch and dynconv data prepare make "
            f"prepared/{Path(corpus).name}; the comment at the head of the recipe, or of its base, "
            "says how"
        )
    hint = nearest(corpus, [*shipped, *(f"prepared/{name}" for name in others)], "there are")
    tried = Path(corpus).absolute()
    raise UserError(f"no corpus {quoted(corpus)}: not shipped, and no directory {tried}; {hint}")


def require_suffix(language: str) -> None:
    """Raise UserError unless a language can be the suffix of a file."""
    if not language or Path(f"train.{language}").name != f"train.{language}":
        raise UserError(f"language {quoted(language)} is no suffix of a file such as train.de")


def require_split(directory: Path, name: str) -> Path:
    """Return the file `name` ("train.de") in a directory, or NAME.xz, or NAME.gz.

    Raises UserError when there is none.
    """
    if (path := find_split(directory, name)) is not None:
        return path
    split, _, suffix = name.partition(".")
    splits = sorted({file.name.partition(".")[0] for file in directory.glob(f"*.{suffix}*")})
    others = sorted(file.name for file in directory.glob(f"{split}.*"))
    hint = ""
    if splits:
        hint = f"; there are the splits {', '.join(splits)}"
    elif others:
        hint = f"; there are {', '.join(others)}: name the suffixes by data.source and data.target"
    names = [name, *(name + suffix for suffix in OPENERS)]
    raise UserError(f"{directory}: no {names[0]}, {names[1]} or {names[2]} there{hint}")


def find_split(directory: Path, name: str) -> Path | None:
    """Return the file `name` in a directory, or NAME.xz, or NAME.gz; None when there is none."""
    paths = (directory / f"{name}{suffix}" for suffix in ("", *OPENERS))
    return next(filter(Path.is_file, paths), None)


def require_references(directory: Path, name: str) -> list[Path]:
    """Return the files of all references of a split: `name` ("test.summary"), then NAME1, NAME2 ...

    Raises UserError when there is none.
    """
    files = [require_split(directory, name)]
    while (file := find_split(directory, f"{name}{len(files)}")) is not None:
        files.append(file)
    return files


def load_parallel(corpus: str, source: str, target: str, split: str) -> ParallelText:
    """Read a split ("train") of a corpus in two languages ("de", "en"), blank lines included."""
    directory = corpus_dir(corpus)
    paths = [require_split(directory, f"{split}.{language}") for language in (source, target)]
    pairs = list(stream_parallel(*paths))
    return ParallelText([s for s, _ in pairs], [t for _, t in pairs])


def stream_parallel(*paths: Path) -> Iterator[Row]:
    """Yield line i of all files as a tuple, for one i at a time.

    Raises UserError at the end if one file has more lines than another.
    """
    streams = [stream_lines(path) for path in paths]
    for number, row in enumerate(zip_longest(*streams)):
        if None in row:
            rest = (sum(1 for _ in stream) for stream in streams)
            counts = [number + (s is not None) + n for s, n in zip(row, rest, strict=True)]
            other = next(i for i, count in enumerate(counts) if count != counts[0])
            raise UserError(
                f"{paths[0]} has {counts[0]} lines but {paths[other]} has {counts[other]}: "
                "a parallel text needs the same number on both sides"
            )
        yield row
