"""A trace of one update, for chrome://tracing or ui.perfetto.dev."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

BEFORE = 9
"""updates of this start that come before the traced one"""


@contextmanager
def profiling(run: Path, wanted: bool) -> Iterator[Callable[[], None]]:
    """Yield what to call after each update; the tenth is written to RUN/trace.json."""
    if not wanted:
        yield lambda: None
        return
    from torch.profiler import profile, schedule

    with profile(
        schedule=schedule(wait=BEFORE - 1, warmup=1, active=1, repeat=1),
        on_trace_ready=lambda trace: trace.export_chrome_trace(str(run / "trace.json")),
        record_shapes=True,
    ) as trace:
        yield trace.step
