"""The steps from raw files to splits: find, tokenise on all processors, clean, hold out, write."""

import multiprocessing
import os
import re
import signal
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import cache, partial
from itertools import islice
from pathlib import Path

from dynconv.errors import UserError
from dynconv.text.lines import Row, stream_lines, stream_parallel

LANGUAGE = re.compile(r"(?<=\.)[a-z]{2}(-[a-z]{2})?(?=\.|$)")
"""the code of a language, or of a pair, in the name of a file"""
SEGMENT = re.compile(r'<seg id="\d+">\s*|\s*</seg>\s*')
"""the tags around a sentence of an evaluation set"""
ITEMS_IN_MEMORY = 100_000
"""items in memory at a time"""
MIN_PARALLEL = 10_000
"""the minimum number of items to process in parallel: for fewer, starting processes takes longer
than the work"""
ITEMS_PER_TASK = 500
"""items handed to a process at a time"""

Side = tuple[Path, str]
"""the raw file of one side, and its language"""


class MissingRawFileError(UserError):
    """Reports a missing raw file; `build_corpus` adds where to get it."""


def require_raw(raw: Path, name: str) -> Path:
    """Find the one file of this name (or end of a path, or pattern) below `raw`, plain or .gz.

    Raises MissingRawFileError, which names the same file of another language pair if there is one.
    """
    for suffix in ("", ".gz"):
        matches = sorted(path for path in raw.rglob(name + suffix) if path.is_file())
        if len(matches) > 1:
            raise UserError(f"{matches[0]} and {matches[1]}: which one? remove the other")
        if matches:
            return matches[0]
    pattern = LANGUAGE.sub(lambda code: "??-??" if code[1] else "??", name)
    similar = next((path for path in sorted(raw.rglob(pattern)) if path.is_file()), None)
    hint = f" (there is {similar.name}: another language pair?)" if similar else ""
    raise MissingRawFileError(f"{raw}: no {name} there{hint}")


def require_sides(raw: Path, name: str, languages: Iterable[str]) -> list[Side]:
    """Find the file of each language, whose code replaces {} in `name`."""
    return [(require_raw(raw, name.format(language)), language) for language in languages]


def read_segments(path: Path) -> Iterator[str]:
    """Read the sentences of an evaluation set in SGML or XML, which has one <seg> per line.

    As in the papers' scripts, entities stay and a curly apostrophe becomes straight.
    """
    lines = (line for line in stream_lines(path) if "<seg id" in line)
    return (SEGMENT.sub("", line).replace("’", "'") for line in lines)


def tokenized_pairs(
    out: Path,
    sides: Iterable[Side],
    read: Callable[[Path], Iterator[str]],
    tokenize: Callable[..., str],
) -> Iterator[Row]:
    """Yield the pairs of lines of two raw files, tokenised on all processors.

    read      reads the lines of a file
    tokenize  turns a line, given its language, into words separated by spaces

    The tokenised lines of each file are kept in out/stages, so that a preparation that was
    interrupted reuses those that are not older than their raw file.
    """
    stages = []
    for file, language in sides:
        name = f"{file.parent.name}-{file.name.removesuffix('.gz')}"  # splits may share file names
        stage = out / "stages" / name
        if not (stage.is_file() and stage.stat().st_mtime >= file.stat().st_mtime):
            stage.parent.mkdir(exist_ok=True)
            part = stage.with_name(stage.name + ".part")
            lines = parallel_map(partial(tokenize, language=language), read(file), file.name)
            with part.open("w", encoding="utf-8", newline="\n") as text:
                text.writelines(line + "\n" for line in lines)
            os.replace(part, stage)
        stages.append(stage)
    yield from stream_parallel(*stages)


def parallel_map(function: Callable, items: Iterable, what: str) -> Iterator:
    """Yield function(item) of each item in order, from all processors, in bounded memory.

    what  names the progress bar, which is shown on terminals only
    """
    from tqdm import tqdm

    items = iter(items)
    pool = None
    bar = tqdm(desc=what, unit=" lines", unit_scale=True, disable=None)
    with bar, ExitStack() as stack:
        while block := list(islice(items, ITEMS_IN_MEMORY)):
            if pool is None and len(block) < MIN_PARALLEL:
                yield from map(function, block)
            else:
                pool = pool or stack.enter_context(worker_pool())
                yield from pool.map(function, block, ITEMS_PER_TASK)
            bar.update(len(block))


def worker_pool():
    """Return a pool of processes, one per core, in which only the parent handles Ctrl-C.

    They are spawned, because fork does not copy the threads of the bar and of torch.
    """
    context = multiprocessing.get_context("spawn")
    return context.Pool(initializer=signal.signal, initargs=(signal.SIGINT, signal.SIG_IGN))


def fits(pair: Row, longest: int, ratio: float) -> bool:
    """Return whether clean-corpus-n.perl -ratio RATIO 1 LONGEST keeps a pair.

    It does if each side has 1 to LONGEST words, none of them over 1000 characters, and is at most
    RATIO times as long as the other.
    """
    sides = [side.split() for side in pair]
    shorter, longer = sorted(map(len, sides))
    if not 1 <= shorter <= longer <= longest:
        return False
    return longer / shorter <= ratio and max(len(w) for side in sides for w in side) <= 1000


def hold_out(every: int, pairs: Iterable[Row]) -> Iterator[tuple[str, Row]]:
    """Send one pair in `every`, the last of each group, to split valid and the others to train."""
    for number, pair in enumerate(pairs, 1):
        yield "train" if number % every else "valid", pair


def write_splits(
    out: Path, suffixes: Sequence[str], lines: Iterable[tuple[str, Row]]
) -> dict[str, int]:
    """Write the lines of each split to out/SPLIT.SUFFIX and return how many each has."""
    counts: Counter[str] = Counter()
    with ExitStack() as stack:

        @cache
        def files(split):
            paths = [out / f"{split}.{suffix}" for suffix in suffixes]
            return [stack.enter_context(p.open("w", encoding="utf-8", newline="\n")) for p in paths]

        for split, row in lines:
            for file, line in zip(files(split), row, strict=True):
                file.write(line + "\n")
            counts[split] += 1
    return dict(counts)
