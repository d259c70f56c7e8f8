"""A notebook's functions run on several processes, and no call hangs."""

import math
import os
import time

import pytest
import torch
import torch.distributed as dist

from dynconv.teach import Processes

OFFSET = 10.0


def shifted(x, offset=OFFSET):
    """A module, a default, and another function of the "notebook"."""
    return sum(math.floor(y) for y in [x]) + nothing(offset)


def nothing(x):
    return x


def summed(scale):
    x = torch.tensor([dist.get_rank() * scale])
    dist.all_reduce(x)
    return dist.get_rank(), dist.get_world_size(), [shifted(n) for n in x.tolist()]


def fails():
    if dist.get_rank():
        raise ValueError("no such thing")


def leaves():
    if dist.get_rank():
        os._exit(3)
    dist.barrier()


def sleeps():
    time.sleep(60)


def ends_early():
    for _ in range(3 + dist.get_rank()):
        dist.all_reduce(torch.ones(1))


@pytest.fixture(scope="module")
def two():
    processes = Processes(2)
    yield processes
    processes.stop()


def test_a_function_runs_in_as_many_processes_as_asked(two):
    assert two.run(2, summed, 3.0) == [(0, 2, [13.0]), (1, 2, [13.0])]
    assert two.run(1, summed, 3.0) == [(0, 1, [10.0])]
    with pytest.raises(ValueError, match="size 3: these are 2 processes"):
        two.run(3, summed, 3.0)


def test_says_which_rank_failed_and_goes_on(two):
    two.start(2)
    before = list(two.children)
    with pytest.raises(RuntimeError, match="process 1 of 2: ValueError in fails: no such thing"):
        two.run(2, fails)
    with pytest.raises(RuntimeError, match="process 1 of 2: "):
        two.run(2, ends_early, wait=5.0)
    assert two.run(2, summed, 1.0)[1] == (1, 2, [11.0])
    assert two.children == before


def test_a_process_that_dies_or_hangs_is_reported(two):
    with pytest.raises(RuntimeError, match="process 1 of 2 died"):
        two.run(2, leaves)
    assert not two.children
    assert two.run(1, summed, 1.0) == [(0, 1, [10.0])]
    (child,) = two.children
    with pytest.raises(TimeoutError, match="process 0 did not end within 0.5 s"):
        two.run(1, sleeps, limit=0.5)
    assert not child.is_alive()
