"""Ctrl-C, SIGTERM and a closed terminal, which end training after the current update."""

import os
import signal
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch.distributed as dist

HANGUP: int | None = getattr(signal, "SIGHUP", None)
"""sent when the terminal is closed; Windows has none"""
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, *([HANGUP] if HANGUP else []))


@contextmanager
def catch_signals() -> Iterator[Callable[[], int]]:
    """Defer ctrl-C, SIGTERM and SIGHUP; yield a function that returns the signal received, or 0.

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
        if number == HANGUP:
            leave_terminal()
        if not dist.is_torchelastic_launched():
            restore()

    def restore() -> None:
        for number, previous in before.items():
            signal.signal(number, previous)

    before = {}
    for number in STOP_SIGNALS:
        if number != HANGUP or signal.getsignal(number) is not signal.SIG_IGN:  # nohup ignores it
            before[number] = signal.signal(number, handler)
    try:
        yield lambda: received
    finally:
        restore()


def leave_terminal() -> None:
    """Send output to /dev/null instead of a terminal, which may be closed: writing would fail."""
    for descriptor in (1, 2):
        if stat.S_ISCHR(os.fstat(descriptor).st_mode):
            os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
