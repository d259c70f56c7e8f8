"""Clean pairs by length, assign them to splits, and write the files of the splits."""

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path

from dynconv.text.corpus import Row


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
    """Send every EVERYth pair (the first is number 1) to split valid, the others to train."""
    for number, pair in enumerate(pairs, 1):
        yield "train" if number % every else "valid", pair


def write_splits(out: Path, suffixes: Row, lines: Iterable[tuple[str, Row]]) -> dict[str, int]:
    """Write the lines of each split to out/SPLIT.SUFFIX and return how many each has."""
    counts = Counter()
    with ExitStack() as stack:

        @cache
        def files(split):
            paths = [out / f"{split}.{suffix}" for suffix in suffixes]
            return [stack.enter_context(p.open("w", encoding="utf-8", newline="\n")) for p in paths]

        for split, pair in lines:
            for file, line in zip(files(split), pair, strict=True):
                file.write(line + "\n")
            counts[split] += 1
    return dict(counts)
