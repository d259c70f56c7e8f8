"""Apply a function to millions of lines on all processors, in bounded memory."""

import multiprocessing
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from itertools import islice
from typing import TypeVar

BLOCK = 100_000
"""items in memory at a time"""
FEW = 10_000
"""fewer items take less time than starting processes"""
CHUNK = 500
"""items handed to a process at a time"""

Item = TypeVar("Item")
Result = TypeVar("Result")


def parallel_map(
    function: Callable[[Item], Result], items: Iterable[Item], what: str
) -> Iterator[Result]:
    """Yield function(item) of each item, in order, with a progress bar on terminals."""
    from tqdm import tqdm

    items, pool = iter(items), None
    bar = tqdm(desc=what, unit=" lines", unit_scale=True, disable=None)
    with bar, ExitStack() as stack:
        while block := list(islice(items, BLOCK)):
            if pool is None and len(block) < FEW:
                yield from map(function, block)
            else:
                pool = pool or stack.enter_context(_pool())
                yield from pool.map(function, block, CHUNK)
            bar.update(len(block))


def _pool():
    # spawn, because fork does not copy the threads of the bar and of torch. Only the parent
    # handles Ctrl-C.
    context = multiprocessing.get_context("spawn")
    return context.Pool(initializer=signal.signal, initargs=(signal.SIGINT, signal.SIG_IGN))
