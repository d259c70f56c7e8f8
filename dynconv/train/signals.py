"""Ctrl-C and SIGTERM, which end training after the current update."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch.distributed as dist

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def catch_signals() -> Iterator[Callable[[], int]]:
    """Defer ctrl-C and SIGTERM; yield a function that returns the signal received, or 0.

    A second signal has its usual effect, except under torchrun, which forwards the ctrl-C that the
    terminal has already sent to all processes. Only the main thread can defer signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: 0
        return
    received = 0

    def handler(number: int, _) -> None:
        nonlocal received
        received = number
        if not dist.is_torchelastic_launched():
            restore()

    def restore() -> None:
        for number, previous in before.items():
            signal.signal(number, previous)

    before = {number: signal.signal(number, handler) for number in STOP_SIGNALS}
    try:
        yield lambda: received
    finally:
        restore()
