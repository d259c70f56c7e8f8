"""Logs training: to log.jsonl, to TensorBoard, and on a progress bar with the time left."""

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dynconv.files import disk_errors, path_inside, replace_text
from dynconv.machine import peak_memory
from dynconv.train.events import LOG, read_log
from dynconv.train.run_directory import TENSORBOARD, check_not_deleted
from dynconv.train.session import Session
from dynconv.train.stopwatch import format_seconds
from dynconv.train.update import UpdateStats

LOG_EVERY = 20
"""updates between two lines of log.jsonl"""
SAY_EVERY = 60.0
"""seconds between two lines on stderr where it is no terminal, and so has no bar"""


class Log:
    """Writes the log of rank 0. Resuming does not depend on it."""

    def __init__(self, session: Session):
        """Drop the events after the session's progress, which belong to updates that were lost."""
        from torch.utils.tensorboard import SummaryWriter
        from tqdm import tqdm

        run = session.run
        done, _, validated = session.progress
        self._path = path_inside(run, LOG)
        self._config = session.recipe.train
        self._device = session.world.device
        self._stopwatch = session.stopwatch
        if self._path.exists():
            kept = [e for e in read_log(run) if e["update"] <= done]
            if not validated:
                kept = [e for e in kept if (e["event"], e["update"]) != ("valid", done)]
            replace_text(self._path, "".join(json.dumps(e) + "\n" for e in kept))
        self._file = self._path.open("a", encoding="utf-8")
        self._board = SummaryWriter(path_inside(run, TENSORBOARD), purge_step=done + 1)
        self._board.flush()  # so that its thread writes the header of the file
        shape = "{desc}: {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} [{elapsed}{postfix}]"
        total = self._config.updates
        self._bar = tqdm(initial=done, total=total, bar_format=shape, disable=None, desc="train")
        self._said = time.monotonic()
        self._begin_interval()

    def _begin_interval(self) -> None:
        """Begin to sum what the next line of log.jsonl is about."""
        self._loss, self._tokens = 0.0, 0
        self._start = self._stopwatch.training_seconds

    def log_event(self, event: str, update: int, **values: float | str | None) -> None:
        """Add a line to log.jsonl, and each number to TensorBoard; None means unknown."""
        check_not_deleted(self._path.parent)
        with disk_errors(self._path):
            self._file.write(json.dumps({"event": event, "update": update, **values}) + "\n")
            self._file.flush()
        for name, value in values.items():
            if isinstance(value, int | float):
                self._board.add_scalar(f"{event}/{name}", value, update)

    def report_update(self, done: int, stats: UpdateStats) -> None:
        """Show update number `done` on the bar; every LOG_EVERY updates add a line to the log."""
        self._loss += stats.loss
        self._tokens += stats.tokens
        left = self._left(done)
        shown = {"loss": f"{stats.loss / stats.tokens:.2f}", "lr": f"{stats.lr:.2e}"}
        if left is not None:
            shown["left"] = format_seconds(left)
        self._bar.set_postfix(shown, refresh=False)
        self._bar.update()
        if self._bar.disable and time.monotonic() - self._said >= SAY_EVERY:
            self._say_progress(done, f"training loss {shown['loss']}", left)
        if done % LOG_EVERY == 0:
            self.log_event(
                "train",
                done,
                loss=self._loss / self._tokens,
                lr=stats.lr,
                norm=stats.grad_norm,
                scale=stats.loss_scale,
                tokens_per_s=self._tokens / (self._stopwatch.training_seconds - self._start),
                memory_gb=peak_memory(self._device) / 1e9,
                left_s=left,
                overhead=self._stopwatch.overhead,
            )
            self._begin_interval()

    def report_validation(self, done: int, result: str, example: str) -> None:
        """Show the result of a validation that has been logged, with an example."""
        self._say_progress(done, result, self._left(done))
        if example:
            self.say(f"    {example}")

    def _say_progress(self, done: int, result: str, left: float | None) -> None:
        """Print a result of update number `done` and the seconds left, None if not known."""
        time_left = f", {format_seconds(left)} left" if left else ""  # unknown, or finished
        self.say(f"update {done}: {result}{time_left}")

    def _left(self, done: int) -> float | None:
        """Return the seconds until the last validation, or None if it is too early to tell."""
        updates, every = self._config.updates, self._config.checkpoint_every
        if done == updates:
            return 0.0
        return self._stopwatch.seconds_left(updates - done, -(-updates // every) - done // every)

    def say(self, text: str) -> None:
        """Print a line above the bar."""
        self._said = time.monotonic()
        self._bar.write(text, file=sys.stderr)

    def close(self) -> None:
        """Close the files."""
        self._bar.close()
        if self._path.exists():  # or TensorBoard's thread would print a traceback
            self._board.close()
        self._file.close()


def discard(*arguments: Any, **values: Any) -> None:
    """Do nothing."""


class SilentLog(Log):
    """The log of all other ranks, which discards everything."""

    __init__ = log_event = report_update = report_validation = say = close = discard


@contextmanager
def open_log(session: Session) -> Iterator[Log]:
    """Yield the log of this rank, and close it at the end."""
    world, config = session.world, session.recipe.train
    log = Log(session) if world.is_rank_zero else SilentLog()
    processes = f"{world.size} process{'es' if world.size > 1 else ''}"
    log.say(
        f"update {session.progress.updates} of {config.updates}; {processes} "
        f"on {world.device.type}, {config.precision}"
    )
    if session.left_out:
        limit = session.recipe.example_limit
        log.say(
            f"{session.left_out:,} of {len(session.examples):,} {session.task.unit} are left "
            f"out: a side has more than {limit} tokens (data.max_example_tokens, "
            "train.batch_tokens)"
        )
    try:
        yield log
    finally:
        log.close()
