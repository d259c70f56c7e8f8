"""Which pairs are kept, in which split, and the files that hold them."""

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path

Pair = tuple[str, ...]
"""one line of each side"""


def fits(pair: Pair, longest: int, ratio: float) -> bool:
    """clean-corpus-n.perl -ratio RATIO 1 LONGEST: each side has 1 to LONGEST words, none of them
    over 1000 characters, and is at most RATIO times as long as the other."""
    sides = [side.split() for side in pair]
    shorter, longer = sorted(map(len, sides))
    if not 1 <= shorter <= longer <= longest:
        return False
    return longer / shorter <= ratio and max(len(w) for side in sides for w in side) <= 1000


def hold_out(every: int, pairs: Iterable[Pair]) -> Iterator[tuple[str, Pair]]:
    """Pair EVERY, 2 EVERY ... (the first is 1) goes to split valid, the others to train."""
    for number, pair in enumerate(pairs, 1):
        yield "train" if number % every else "valid", pair


def write(out: Path, suffixes: Pair, lines: Iterable[tuple[str, Pair]]) -> dict[str, int]:
    """Write each split's lines to out/SPLIT.SUFFIX; returns how many each has."""
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
