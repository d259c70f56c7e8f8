"""Ctrl-C and SIGTERM end training after the update in hand."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from torch.distributed import is_torchelastic_launched

ENDING = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def signals() -> Iterator[Callable[[], int]]:
    """Yield what tells the signal that came, 0 for none.

    A second one has its ordinary effect. Not so under torchrun, which passes on the ctrl-C that the
    terminal has sent to all processes already.
    """
    came = 0

    def handler(number: int, _) -> None:
        nonlocal came
        came = number
        if not is_torchelastic_launched():
            restore()

    def restore() -> None:
        for number, previous in before.items():
            signal.signal(number, previous)

    before = {number: signal.signal(number, handler) for number in ENDING}
    try:
        yield lambda: came
    finally:
        restore()
