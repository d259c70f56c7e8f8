"""Ctrl-C and SIGTERM end training after the update in hand."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

ENDING = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def signals(once: bool) -> Iterator[Callable[[], int]]:
    """Yield what tells the signal that came, 0 for none.

    With `once`, a second one has its ordinary effect. Under torchrun it must not: torchrun passes
    on the ctrl-C that the terminal has sent to all processes already.
    """
    came = 0

    def handler(number: int, _) -> None:
        nonlocal came
        came = number
        if once:
            restore()

    def restore() -> None:
        for number, previous in before.items():
            signal.signal(number, previous)

    before = {number: signal.signal(number, handler) for number in ENDING}
    try:
        yield lambda: came
    finally:
        restore()
