"""Reads lines of text, plain or compressed, also of several files in parallel."""

import codecs
import gzip
import lzma
import zlib
from collections.abc import Callable, Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any, BinaryIO

from dynconv.errors import UserError
from dynconv.files import unreadable_error

OPENERS: dict[str, Callable[..., Any]] = {".xz": lzma.open, ".gz": gzip.open}

MAX_LINE_BYTES = 1_000_000
"""maximum bytes of a line, which bounds memory even if a file is not text"""
MAX_WORD_BYTES = 10_000
"""maximum bytes of a word: the time to learn a vocabulary grows with its square"""

Row = tuple[str, ...]
"""one line of each side of a corpus"""


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
        raise unreadable_error(path, error) from None
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
