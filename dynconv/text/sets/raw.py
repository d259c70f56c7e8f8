"""Raw files: to find them, to read evaluation sets, to keep what became of each."""

import os
import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

from dynconv.errors import UserError
from dynconv.text.corpus import stream_lines, stream_parallel
from dynconv.text.sets.parallel import parallel

LANGUAGE = re.compile(r"(?<=\.)[a-z]{2}(-[a-z]{2})?(?=\.|$)")
SEGMENT = re.compile(r'<seg id="\d+">\s*|\s*</seg>\s*')


class Missing(UserError):
    """A raw file that is not there; `build` adds where to get it."""


def find(raw: Path, name: str) -> Path:
    """The one file of this name (or end of a path, or pattern) below `raw`, plain or .gz.

    Raises Missing, which also says whether there is that file of another language pair.
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


def segments(path: Path) -> Iterator[str]:
    """The sentences of an evaluation set in SGML or XML: a <seg> a line.

    Entities stay as they are, and a curly apostrophe becomes straight, as in the papers' scripts.
    """
    lines = (line for line in stream_lines(path) if "<seg id" in line)
    return (SEGMENT.sub("", line).replace("’", "'") for line in lines)


def stage(out: Path, file: Path, lines: Iterable[str]) -> Path:
    """Write what became of a raw file; it is reused should the preparation be interrupted.

    `lines` is not touched when a finished stage, not older than the raw file, is there.
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


def words(
    out: Path,
    files: Iterable[tuple[Path, str]],
    read: Callable[[Path], Iterator[str]],
    tokenized: Callable[[str, str], str],
) -> Iterator[tuple[str, ...]]:
    """The pairs of lines of two raw files, tokenised on all processors, through a stage each.

    files      the file of each side and its language
    read       the lines of a file
    tokenized  a line and its language to words
    """
    stages = []
    for file, language in files:
        lines = parallel(partial(tokenized, language=language), read(file), file.name)
        stages.append(stage(out, file, lines))
    yield from stream_parallel(*stages)
