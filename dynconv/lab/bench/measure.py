"""Time by turns and memory by the allocator's own account."""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from statistics import median

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

SAMPLE = 0.01  # seconds that one measurement lasts at least
SLOW = 2.0  # seconds of a call after which it is not made again


def seconds(run: Callable[[], object]) -> float:
    """Seconds that one call takes; calls that end sooner are repeated until SAMPLE has passed."""
    start, calls, passed = time.perf_counter(), 0, 0.0
    while passed < SAMPLE:
        run()
        calls += 1
        passed = time.perf_counter() - start
    return passed / calls


Runs = dict[tuple[str, str], Callable[[], object]]
Times = dict[tuple[str, str], list[float]]


def by_turns(runs: Runs, rounds: int, done: Callable[[], object]) -> Times:
    """Seconds of every run in every round, in the reverse order every other round.

    Whatever slows the machine for a while slows neighbours alike. A run that took more than SLOW
    seconds misses all later rounds. `done` is called after each measurement.
    """
    times: Times = {name: [] for name in runs}
    for number in range(rounds):
        for name in list(runs)[:: -1 if number % 2 else 1]:
            if max(times[name], default=0) <= SLOW:
                times[name].append(seconds(runs[name]))
            done()
    return times


def ratios(above: list[float], below: list[float]) -> list[float]:
    """One time by the other, in each round that both took part in.

    With fewer than three such rounds, one slow moment would decide: then one median by the other.
    """
    found = [a / b for a, b in zip(above, below, strict=False)]
    return [median(above) / median(below)] if len(found) in (1, 2) else found


def spread(name: str, values: list[float]) -> dict:
    """The median of the rounds under `name`, the least and the most under `name_range`."""
    if not values:
        return {name: None, f"{name}_range": None}
    return {name: median(values), f"{name}_range": [min(values), max(values)]}


def peak(run: Callable[[], object]) -> int:
    """The most bytes that one call holds at a time, beyond what was there before it.

    PyTorch's allocator is asked: what libraries such as oneDNN allocate themselves is missing.
    """
    with _quiet(), torch.autograd.profiler.profile(profile_memory=True) as profiler:
        run()
    held = most = 0
    for event in profiler.kineto_results.events():
        if event.name() == "[memory]":  # an allocation, or with a negative size its end
            held += event.nbytes()
            most = max(most, held)
    return most


@contextmanager
def _quiet() -> Iterator[None]:
    """Drop what is written to stderr: two lines for each profile, by C++ code of torch 2.13."""
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
    """Collect what autograd keeps for the backward pass: address to bytes, inputs excepted."""
    own = {tensor.untyped_storage().data_ptr() for tensor in inputs}
    kept: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        yield kept
