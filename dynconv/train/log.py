"""Reports on training: log.jsonl, TensorBoard, a progress bar, the time left, and a trace."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from dynconv.files import disk_errors, path_inside, replace_text
from dynconv.machine import peak_memory
from dynconv.tasks import Validation
from dynconv.train.distributed import Ranks
from dynconv.train.events import LOG, read_log
from dynconv.train.run_directory import TENSORBOARD, TRACE, check_not_deleted
from dynconv.train.session import Session
from dynconv.train.stopwatch import Stopwatch, format_seconds
from dynconv.train.update import UpdateStats

LOG_EVERY = 20
"""updates between two lines of log.jsonl"""
TRACED_UPDATE = 10
"""the update of this start that `profile: true` traces"""


class Reporter:
    """The receiver of the training loop's reports.

    On all ranks but 0 it is this class, which writes nothing.
    """

    def __init__(self, watch: Stopwatch, trace: Callable[[], None]):
        self.watch, self._trace = watch, trace

    def log_event(self, event: str, update: int, **values: float | str | None) -> None:
        """Report an event of an update; a value of None is not known."""

    def report_update(self, done: int, update: UpdateStats) -> None:
        """Report update number `done`; wait while rank 0 traces."""
        self._trace()

    def report_validation(self, done: int, validation: Validation, example: str) -> None:
        """Report a validation that has been recorded, with an example."""

    def say(self, text: str) -> None:
        """Show the user a line."""

    def close(self) -> None:
        """Release what reports are written to."""


class LogReporter(Reporter):
    """Writes the reports of rank 0. Resuming does not depend on them."""

    def __init__(self, session: Session, watch: Stopwatch, trace: Callable[[], None]):
        """Drop the events after the session's progress, which belong to updates that were lost."""
        from torch.utils.tensorboard import SummaryWriter
        from tqdm import tqdm

        super().__init__(watch, trace)
        run, (done, _, validated) = session.run, session.progress
        self._path = path_inside(run, LOG)
        self._config, self._device = session.recipe.train, session.ranks.device
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
        self._loss, self._tokens, self._since = 0.0, 0, watch.training_seconds

    def log_event(self, event: str, update: int, **values: float | str | None) -> None:
        """Add a line to log.jsonl, and each number to TensorBoard; None means unknown."""
        check_not_deleted(self._path.parent)
        with disk_errors(self._path):
            self._file.write(json.dumps({"event": event, "update": update, **values}) + "\n")
            self._file.flush()
        for name, value in values.items():
            if isinstance(value, int | float):
                self._board.add_scalar(f"{event}/{name}", value, update)

    def report_update(self, done: int, update: UpdateStats) -> None:
        """Report update number `done` on the bar, and every LOG_EVERY updates in the log."""
        self._loss, self._tokens = self._loss + update.loss, self._tokens + update.tokens
        left = self._left(done)
        shown = {"loss": f"{update.loss / update.tokens:.2f}", "lr": f"{update.lr:.2e}"}
        if left is not None:
            shown["left"] = format_seconds(left)
        self._bar.set_postfix(shown, refresh=False)
        self._bar.update()
        if done % LOG_EVERY == 0:
            self.log_event(
                "train",
                done,
                loss=self._loss / self._tokens,
                lr=update.lr,
                norm=update.norm,
                scale=update.scale,
                tokens_per_s=self._tokens / (self.watch.training_seconds - self._since),
                memory_gb=peak_memory(self._device) / 1e9,
                left_s=left,
                overhead=self.watch.overhead,
            )
            self._loss, self._tokens, self._since = 0.0, 0, self.watch.training_seconds
        super().report_update(done, update)

    def report_validation(self, done: int, validation: Validation, example: str) -> None:
        left = self._left(done)
        time_left = f", {format_seconds(left)} left" if left else ""  # unknown, or finished
        self.say(f"update {done}: {validation}{time_left}")
        if example:
            self.say(f"    {example}")

    def _left(self, done: int) -> float | None:
        """Return the seconds until the last validation, or None if it is too early to tell."""
        updates, every = self._config.updates, self._config.validate_every
        if done == updates:
            return 0.0
        return self.watch.seconds_left(updates - done, -(-updates // every) - done // every)

    def say(self, text: str) -> None:
        """Print a line above the bar."""
        self._bar.write(text, file=sys.stderr)

    def close(self) -> None:
        self._bar.close()
        if self._path.exists():  # or TensorBoard's thread would print a traceback
            self._board.close()
        self._file.close()


@contextmanager
def open_log(session: Session, watch: Stopwatch) -> Iterator[Reporter]:
    """Yield the log of this rank, and close it at the end."""
    ranks, config = session.ranks, session.recipe.train
    with tracing(session.run, session.recipe.profile, ranks) as trace:
        log = LogReporter(session, watch, trace) if ranks.is_rank_zero else Reporter(watch, trace)
        log.say(
            f"update {session.progress.updates} of {config.updates}; {ranks.size} "
            f"process{'es' if ranks.size > 1 else ''} on {ranks.device.type}, {config.precision}"
        )
        if session.too_long:
            limit = session.recipe.longest_example
            log.say(
                f"{session.too_long:,} of {len(session.examples):,} {session.task.unit} are left "
                f"out: a side has more than {limit} tokens (data.max_length, train.batch_tokens)"
            )
        watch.lap("start")
        try:
            yield log
        finally:
            log.close()


@contextmanager
def tracing(run: Path, enabled: bool, ranks: Ranks) -> Iterator[Callable[[], None]]:
    """Yield a function to call after each update; the tenth is written to RUN/trace.json.

    Rank 0 traces, and the others wait for it with LONG_TIMEOUT: writing a trace takes longer than
    train.timeout allows.
    """
    if not enabled:
        yield lambda: None
        return
    from torch.profiler import profile, schedule

    profiler = profile(
        schedule=schedule(wait=TRACED_UPDATE - 2, warmup=1, active=1, repeat=1),
        on_trace_ready=lambda trace: trace.export_chrome_trace(str(path_inside(run, TRACE))),
        record_shapes=True,
    )
    calls = 0

    def step() -> None:
        nonlocal calls
        calls += 1
        if calls <= TRACED_UPDATE:
            ranks.on_rank_zero(profiler.step)

    with profiler if ranks.is_rank_zero else nullcontext():
        yield step
