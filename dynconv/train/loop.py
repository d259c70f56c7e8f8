"""The training loop: updates, checkpoints and validations until the run is finished or stopped."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from pathlib import Path
from signal import SIGTERM, Signals

from dynconv.config import Recipe
from dynconv.cpu_memory import keep_cpu_memory
from dynconv.errors import UserError, out_of_memory_message
from dynconv.train.averaging import complete_average
from dynconv.train.data import iter_updates, prefetch
from dynconv.train.distributed import join_processes
from dynconv.train.log import Log, open_log
from dynconv.train.not_finite import raise_not_finite
from dynconv.train.run_directory import folder_lock
from dynconv.train.saving import CheckpointSaver
from dynconv.train.session import Session
from dynconv.train.setup import open_session
from dynconv.train.signals import catch_signals
from dynconv.train.stopwatch import Stopwatch
from dynconv.train.tracing import tracing
from dynconv.train.update import SkippedUpdate, make_update
from dynconv.train.validate import preview_output, validate


def train(
    recipe: Recipe,
    run: Path | str,
    watch: Stopwatch | None = None,
    *,
    prepared: Path | None = None,
) -> Signals | None:
    """Train by a recipe in a run directory, from its newest intact checkpoint if it has one.

    Under torchrun this process is one of several, which share the work. On a CPU, this
    process from now on keeps freed memory for its next use (`dynconv.cpu_memory`), as the command
    line does for all of its commands, on any device.

    run       the run directory
    watch     measures where time is spent
    prepared  directory of the recipe's encoded corpus: a new run copies it instead of encoding the
              corpus again

    Returns the signal (ctrl-C, SIGTERM or SIGHUP) that ended training early, after saving; None
    when it is finished. Outside the main thread of a program, signals are not caught. Raises
    UserError for mistakes that a user can fix.
    """
    run = Path(run)
    with (
        join_processes(recipe.train.timeout) as world,
        folder_lock(run) if world.is_rank_zero else nullcontext(),
        explain_out_of_memory(recipe),
    ):
        if world.device.type == "cpu":
            keep_cpu_memory()
        session = open_session(recipe, run, world, watch or Stopwatch(), prepared)
        with (
            catch_signals() as pending_signal,
            tracing(run, session.recipe.profile, world) as trace_update,
            open_log(session) as log,
            ThreadPoolExecutor(1) as writer,
        ):
            session.stopwatch.lap("start")
            saver = CheckpointSaver(session, writer)
            return run_updates(session, saver, pending_signal, trace_update, log)


@contextmanager
def explain_out_of_memory(recipe: Recipe) -> Iterator[None]:
    """Turn an out-of-memory error into a UserError that names the remedy."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not (reason := out_of_memory_message(error)):
            raise
        config = recipe.train
        now = config.batch_tokens
        remedy = f"lower train.batch_tokens (now {now}) and raise train.accumulate as much"
        if not config.checkpoint_activations:
            remedy += ", or set train.checkpoint_activations=true"
        raise UserError(f"{reason}: {remedy}") from None


def run_updates(
    session: Session,
    saver: CheckpointSaver,
    pending_signal: Callable[[], int],
    trace_update: Callable[[], None],
    log: Log,
) -> Signals | None:
    """Make updates, with checkpoints and validations, until training is finished or interrupted.

    pending_signal  returns the signal that this process has received, or 0
    trace_update    is called after each update
    """
    recipe, config, watch = session.recipe, session.recipe.train, session.stopwatch
    position = session.progress.position
    updates = prefetch(
        iter_updates(session.examples, recipe.example_limit, config, position, session.world)
    )
    while True:
        if session.checkpoint_is_due and not session.progress.validated:
            validate_checkpoint(session, saver, log)
        if session.is_finished:
            break
        update = next(updates)
        watch.lap("data")
        result = make_update(session, update, pending_signal)
        if isinstance(result, SkippedUpdate):
            log.log_event("skip", session.progress.updates + 1, scale=result.loss_scale)
            if session.skipped_in_a_row > config.max_skipped:
                raise_not_finite(session, update, result)
            continue
        watch.count_update()
        log.report_update(session.progress.updates, result)
        trace_update()
        watch.lap("log")
        # Saved here, and validated at the top of the loop, because that may take long.
        if session.checkpoint_is_due or result.stop:
            saver.save()
            watch.lap("save")
        if result.stop:
            saver.wait()
            done = session.progress.updates
            log.say(f"stopped at update {done}, saved; the same command continues from there")
            return Signals(pending_signal() or SIGTERM)
    saver.wait()
    watch.lap("save")
    if config.average_checkpoints:
        complete_average(session, log)
    return None


def validate_checkpoint(session: Session, saver: CheckpointSaver, log: Log) -> None:
    """Validate the newest checkpoint, add the scores to it, and delete older ones."""
    validation = validate(session)
    log.log_event("valid", session.progress.updates, **validation._asdict())
    session.add_to_history(validation)
    saver.add_validation()
    # The other ranks wait here: within an update they would wait for train.timeout only.
    example = session.world.on_rank_zero(lambda: preview_output(session))
    session.stopwatch.lap("validate")
    session.stopwatch.count_validation()
    result = session.task.describe_validation(validation)
    log.report_validation(session.progress.updates, result, example)
