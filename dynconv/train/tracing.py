"""Traces one update of training with PyTorch's profiler, for `profile: true`."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from dynconv.files import path_inside
from dynconv.train.distributed import World
from dynconv.train.run_directory import TRACE

TRACED_UPDATE = 10
"""the update of this start that is traced"""


@contextmanager
def tracing(run: Path, enabled: bool, world: World) -> Iterator[Callable[[], None]]:
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
            world.on_rank_zero(profiler.step)

    with profiler if world.is_rank_zero else nullcontext():
        yield step
