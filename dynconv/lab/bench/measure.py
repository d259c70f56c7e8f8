"""How `dynconv bench` measures: whose turn it is, seconds, memory."""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf
from statistics import median

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

SAMPLE = 0.01  # seconds that one measurement lasts at least


@dataclass
class Run:
    """One implementation in one direction: what is called, and what was measured of it."""

    impl: str
    direction: str
    """forward, backward, or forward_backward for both at once"""
    call: Callable[[], object] | None = None
    """what is timed; None if there is nothing to time, for the reason in `note`"""
    times: list[float] = field(default_factory=list)
    """seconds of one call, an entry for each turn"""
    peak: float | None = None
    """most memory that one call holds, in multiples of x"""
    saved: float | None = None
    """memory that forward saves for backward, in multiples of x, where it is counted"""
    note: str | None = None


def take_turns(
    runs: Sequence[Run], rounds: int, slow: float = inf, least: int = 1
) -> Iterator[Run]:
    """Yield the run to time next: each of them once a round, in reverse order every other round.

    Whatever slows the machine for a while then slows neighbours alike. The caller appends the time
    to `run.times`. A run of which one call took more than `slow` seconds has only `least` turns.
    """
    for number in range(rounds):
        for run in runs[:: -1 if number % 2 else 1]:
            if run.call and (len(run.times) < least or max(run.times) <= slow):
                yield run


def seconds(call: Callable[[], object]) -> float:
    """Return the seconds of one call; short calls are repeated until SAMPLE has passed."""
    start, calls, passed = time.perf_counter(), 0, 0.0
    while passed < SAMPLE:
        call()
        calls += 1
        passed = time.perf_counter() - start
    return passed / calls


def ratios(above: list[float], below: list[float]) -> list[float]:
    """Return one time divided by the other, for each round in which both were measured.

    If there are fewer than three such rounds, one slow moment would decide: then the list has one
    entry, the quotient of the medians.
    """
    found = [a / b for a, b in zip(above, below, strict=False)]
    return [median(above) / median(below)] if len(found) in (1, 2) else found


def spread(name: str, values: list[float]) -> dict:
    """Return the median under `name`, and the least and greatest value under `name_range`."""
    if not values:
        return {name: None, f"{name}_range": None}
    return {name: median(values), f"{name}_range": [min(values), max(values)]}


def four_digits(values: dict) -> dict:
    """Return the values with floats rounded to four significant digits, more than a time has."""

    def rounded(value):
        if isinstance(value, list):
            return [rounded(each) for each in value]
        return float(f"{value:.4g}") if isinstance(value, float) else value

    return {name: rounded(value) for name, value in values.items()}


def peak(call: Callable[[], object]) -> int:
    """Return the most bytes that one call holds at a time, not counting what existed before it.

    This is what PyTorch's CPU allocator hands out; memory that libraries such as oneDNN allocate
    for themselves is missing.
    """
    with _quiet(), torch.autograd.profiler.profile(profile_memory=True) as profiler:
        call()
    held = most = 0
    for event in profiler.kineto_results.events():
        if event.name() == "[memory]":  # an allocation, or with a negative size its end
            held += event.nbytes()
            most = max(most, held)
    return most


@contextmanager
def _quiet() -> Iterator[None]:
    """Drop what is written to stderr: the C++ code of torch 2.13 writes two lines per profile."""
    stderr = os.dup(2)
    with open(os.devnull, "w") as nothing:
        os.dup2(nothing.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)


@contextmanager
def saving(inputs: Sequence[Tensor]) -> Iterator[dict[int, int]]:
    """Collect what autograd saves for the backward pass: address to bytes, without the inputs."""
    own = {tensor.untyped_storage().data_ptr() for tensor in inputs}
    kept: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        yield kept
