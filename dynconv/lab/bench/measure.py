"""Measures time and memory of implementations in turns, because noise then affects all alike."""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf
from statistics import median
from typing import Protocol

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

MIN_RUN_TIME = 0.01
"""minimum seconds of one timing"""


@dataclass
class Measurement:
    """One implementation in one direction: how to call it, and the results so far."""

    operator: str
    impl: str
    direction: str
    """the direction: forward, backward, or forward_backward for both at once"""
    make: Callable[[Sequence[Tensor]], Callable[[], object]] | None = None
    """a function that prepares (runs forward, for example) and returns the call to time; it takes
    `inputs`, or copies of them"""
    inputs: Sequence[Tensor] = ()
    """what the call reads"""
    kept: int = 0
    """bytes of an output that the call keeps alive"""
    call: Callable[[], object] | None = None
    """the call that is timed; None before `prepare`, and if there is nothing to time"""
    times: list[float] = field(default_factory=list)
    """seconds of one call, one entry per turn"""
    peak: int | None = None
    """peak bytes of one call beyond its inputs, including what was saved before it"""
    saved: int | None = None
    """bytes that forward saves for backward, where they are counted"""
    right: bool | None = None
    """whether its results are right; None if they are not checked"""
    error: float | None = None
    note: str | None = None
    """a note on why it was not timed, or what is special about its times"""

    @property
    def ms(self) -> float | None:
        """The median of the times in milliseconds."""
        return median(self.times) * 1e3 if self.times else None

    @contextmanager
    def note_failure(self) -> Iterator[None]:
        """Turn an exception into a note, and go on with the other measurements."""
        try:
            yield
        except Exception as error:  # of many kinds where PyTorch compiles
            self.note = f"failed: {first_line(error)}"
            if isinstance(error, torch.OutOfMemoryError):
                self.note = "left out: with the others it needs more than half of the GPU's memory"
            self.call, self.times = None, []
            self.right = None if self.right is None else False


class Clock(Protocol):
    """The interface of `CpuClock` below and of `GpuClock` in kernels/gpu_clock.py."""

    slow_seconds: float
    """seconds of a call above which a run has only `min_turns` turns"""
    min_turns: int

    def prepare(self, run: Measurement) -> None:
        """Measure the memory of a call, and set `run.call`, which is timed."""

    def seconds(self, call: Callable[[], object]) -> float:
        """Return the seconds of one call."""


class CpuClock:
    """Measures wall-clock time, and the memory that PyTorch's allocator hands out."""

    device = torch.device("cpu")
    stream = None
    slow_seconds = 2.0
    min_turns = 1

    def about(self) -> dict:
        """Return nothing beyond what every record says of the machine."""
        return {}

    def prepare(self, run: Measurement) -> None:
        """Measure the memory of a first call, which also warms up."""
        assert run.make is not None  # else its note says why there is nothing to time
        run.call = run.make(run.inputs)
        with record_saved_tensors(run.inputs) as saved:
            run.peak = peak_allocation(run.call)
        run.saved = sum(saved.values())

    def seconds(self, call: Callable[[], object]) -> float:
        """Return the seconds of one call."""
        return seconds_per_call(call, time.perf_counter)


def seconds_per_call(call: Callable[[], object], now: Callable[[], float]) -> float:
    """Return the seconds of one call by the clock `now`; repeat it until MIN_RUN_TIME is over."""
    calls, passed = 0, 0.0
    start = now()
    while passed < MIN_RUN_TIME:
        call()
        calls += 1
        passed = now() - start
    return passed / calls


def measure(runs: Sequence[Measurement], clock: Clock, rounds: int, title: str) -> None:
    """Prepare and time the runs that have no note yet, with a progress bar called `title`."""
    from tqdm import tqdm

    for run in tqdm(runs, f"{title}, memory", disable=None, leave=False):
        if run.note is None:
            with run.note_failure():
                clock.prepare(run)
    turns = take_turns(runs, rounds, clock.slow_seconds, clock.min_turns)
    for run in tqdm(turns, f"{title}, time", rounds * len(runs), disable=None, leave=False):
        with run.note_failure():
            run.times.append(clock.seconds(run.call))


def take_turns(
    runs: Sequence[Measurement], rounds: int, slow_seconds: float = inf, min_turns: int = 1
) -> Iterator[Measurement]:
    """Yield the run to time next: each run once per round, in reverse order every other round.

    A slow moment of the machine then affects neighbours alike. The caller appends the time to
    `run.times`. A run that once took more than `slow_seconds` gets no more than `min_turns`.
    """
    for number in range(rounds):
        for run in runs[:: -1 if number % 2 else 1]:
            if run.call and (len(run.times) < min_turns or max(run.times) <= slow_seconds):
                yield run


def paired_ratios(above: list[float], below: list[float]) -> list[float]:
    """Return above / below for each round in which both were measured.

    With fewer than three such rounds one slow moment would decide, so the list then has one entry,
    the quotient of the medians.
    """
    quotients = [a / b for a, b in zip(above, below, strict=False)]
    return [median(above) / median(below)] if len(quotients) in (1, 2) else quotients


def median_and_range(name: str, values: list[float]) -> dict:
    """Return the median under `name`, and the minimum and maximum under "NAME_range"."""
    if not values:
        return {name: None, f"{name}_range": None}
    return {name: median(values), f"{name}_range": [min(values), max(values)]}


def round_floats(values: dict) -> dict:
    """Round floats to four significant digits, more than timings are accurate to."""

    def rounded(value):
        if isinstance(value, list):
            return [rounded(each) for each in value]
        return float(f"{value:.4g}") if isinstance(value, float) else value

    return {name: rounded(value) for name, value in values.items()}


def first_line(error: Exception) -> str:
    """Return the first line of an error's message, or its type if there is no message."""
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]


def peak_allocation(call: Callable[[], object]) -> int:
    """Return the peak bytes that one call allocates through PyTorch's CPU allocator.

    What libraries such as oneDNN allocate for themselves is not counted.
    """
    with quiet_stderr(), torch.autograd.profiler.profile(profile_memory=True) as profiler:
        call()
    held = highest = 0
    for event in profiler.kineto_results.events():
        if event.name() == "[memory]":  # an allocation, or a release if negative
            held += event.nbytes()
            highest = max(highest, held)
    return highest


@contextmanager
def quiet_stderr() -> Iterator[None]:
    """Silence stderr: the profiler of torch 2.13 writes two lines to it every time."""
    stderr = os.dup(2)
    with open(os.devnull, "w") as nothing:
        os.dup2(nothing.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)


@contextmanager
def record_saved_tensors(inputs: Sequence[Tensor]) -> Iterator[dict[int, int]]:
    """Collect what autograd saves for backward, except the inputs: bytes by address."""
    input_addresses = {tensor.untyped_storage().data_ptr() for tensor in inputs}
    saved: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in input_addresses:
            saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        yield saved
