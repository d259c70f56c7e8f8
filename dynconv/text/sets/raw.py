"""Find raw files, read evaluation sets, and keep the tokenised form of each file."""

import os
import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

from dynconv.errors import UserError
from dynconv.text.corpus import stream_lines, stream_parallel
from dynconv.text.sets.parallel import parallel_map

LANGUAGE = re.compile(r"(?<=\.)[a-z]{2}(-[a-z]{2})?(?=\.|$)")
SEGMENT = re.compile(r'<seg id="\d+">\s*|\s*</seg>\s*')


class Missing(UserError):
    """A raw file is missing; `build_corpus` adds where to get it."""


def find_raw(raw: Path, name: str) -> Path:
    """Find the one file of this name (or end of a path, or pattern) below `raw`, plain or .gz.

    Raises Missing, which names the same file of another language pair if there is one.
    """
    for end in ("", ".gz"):
        found = sorted(path for path in raw.rglob(name + end) if path.is_file())
        if len(found) > 1:
            raise UserError(f"{found[0]} and {found[1]}: which one? remove the other")
        if found:
            return found[0]
    other = LANGUAGE.sub(lambda code: "??-??" if code[1] else "??", name)
    beside = next((path for path in sorted(raw.rglob(other)) if path.is_file()), None)
    hint = f" (there is {beside.name}: another language pair?)" if beside else ""
    raise Missing(f"{raw}: no {name} there{hint}")


def read_segments(path: Path) -> Iterator[str]:
    """Read the sentences of an evaluation set in SGML or XML, which has one <seg> per line.

    As in the papers' scripts, entities stay and a curly apostrophe becomes straight.
    """
    lines = (line for line in stream_lines(path) if "<seg id" in line)
    return (SEGMENT.sub("", line).replace("’", "'") for line in lines)


def write_stage(out: Path, file: Path, lines: Iterable[str]) -> Path:
    """Write the processed lines of a raw file, to be reused if the preparation is interrupted.

    `lines` is not read when such a file exists already and is not older than the raw file.
    """
    path = out / "stages" / file.name.removesuffix(".gz")
    if path.is_file() and path.stat().st_mtime >= file.stat().st_mtime:
        return path
    path.parent.mkdir(exist_ok=True)
    scratch = path.with_name(path.name + ".part")
    with scratch.open("w", encoding="utf-8", newline="\n") as text:
        text.writelines(line + "\n" for line in lines)
    os.replace(scratch, path)
    return path


def tokenized_pairs(
    out: Path,
    files: Iterable[tuple[Path, str]],
    read: Callable[[Path], Iterator[str]],
    tokenized: Callable[[str, str], str],
) -> Iterator[tuple[str, ...]]:
    """Yield the pairs of lines of two raw files, tokenised on all processors.

    files      the file of each side and its language
    read       reads the lines of a file
    tokenized  turns a line, given its language, into words separated by spaces
    """
    stages = []
    for file, language in files:
        lines = parallel_map(partial(tokenized, language=language), read(file), file.name)
        stages.append(write_stage(out, file, lines))
    yield from stream_parallel(*stages)
