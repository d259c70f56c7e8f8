"""The processes of one training run: a single one, or as many as torchrun started."""

import hashlib
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, TypeVar
from uuid import uuid4

import torch
import torch.distributed as dist
from torch import nn

from dynconv.errors import UserError
from dynconv.machine import default_device

Value = TypeVar("Value")

START_TIMEOUT = timedelta(minutes=10)
"""the time that processes wait for each other at the start, when NCCL starts too; torchrun notices
processes that die"""
LONG_TIMEOUT = timedelta(hours=2)
"""the time that the others wait while one prepares data, validates or saves; they notice at once
when it dies, because its connections close"""
BY_TORCHRUN = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
"""environment variables that torchrun sets for each process"""


@dataclass(frozen=True)
class World:
    """The processes of a training run, as one of them sees them; by default it is the only one."""

    rank: int = 0
    size: int = 1
    """the number of processes"""
    local_rank: int = 0
    """the rank among the processes of the same machine"""
    device: torch.device = field(default_factory=default_device)
    update_group: dist.ProcessGroup | None = None
    """the process group of collectives inside an update, which time out after train.timeout
    seconds; all others use the default group and LONG_TIMEOUT"""

    @property
    def is_rank_zero(self) -> bool:
        return self.rank == 0

    def wrap(self, module: nn.Module) -> nn.Module:
        """Return the module with its gradients averaged over all ranks."""
        if self.size == 1:
            return module
        # Without device_ids, DDP passes the batch, a tuple of tensors, unchanged.
        return nn.parallel.DistributedDataParallel(
            module, process_group=self.update_group, gradient_as_bucket_view=True
        )

    def on_rank_zero(self, function: Callable[[], Value]) -> Value:
        """Call a function on rank 0 and return its result on every rank; the others wait."""
        box: list[Any] = [function() if self.is_rank_zero else None]
        if self.size > 1:
            dist.broadcast_object_list(box, src=0)
        return box[0]

    def gather(self, value: Value) -> list[Value]:
        """Return the values of all ranks, in their order, on every rank."""
        box: list[Any] = [value] * self.size
        if self.size > 1:
            dist.all_gather_object(box, value)
        return box

    def sum_over_ranks(
        self, *values: torch.Tensor | float, replicated: Sequence[torch.Tensor] = ()
    ) -> list[float]:
        """Return the sum of each value over all ranks, followed by the `replicated` values.

        The latter are equal on all ranks and are not summed. All are read at once, so the CPU
        waits for a GPU only once.
        """
        options: dict[str, Any] = {"dtype": torch.float64, "device": self.device}
        sums = torch.stack([torch.as_tensor(value, **options) for value in values])
        if self.size > 1:
            dist.all_reduce(sums, group=self.update_group)
        return torch.cat([sums, *(value.double().view(1) for value in replicated)]).tolist()

    def check_agreement(self, value: Value, difference: Callable[[Value, Value], str]) -> None:
        """Raise UserError on every rank if any rank's value differs from rank 0's.

        `difference` describes how its second argument differs from the first.
        """
        (host, ours), *others = self.gather((socket.gethostname(), value))
        for rank, (where, theirs) in enumerate(others, 1):
            if theirs != ours:
                raise UserError(
                    f"process {rank} (on {where}) and process 0 (on {host}) disagree: "
                    f"{difference(ours, theirs)}"
                )


def torchrun_rank() -> int:
    """Return the rank that torchrun gave this process; 0 without torchrun, whatever RANK says."""
    return int(os.environ["RANK"]) if dist.is_torchelastic_launched() else 0


@contextmanager
def join_processes(timeout: float) -> Iterator[World]:
    """Join the other processes that torchrun started, by NCCL on GPUs and gloo on CPUs.

    `timeout`, in seconds, applies to the collectives of an update. When one process fails, all end:
    the first one reports why, the others raise SystemExit silently.
    """
    if not dist.is_torchelastic_launched():
        yield World()
        return
    if absent := [name for name in BY_TORCHRUN if not os.environ.get(name)]:
        raise UserError(
            f"TORCHELASTIC_RUN_ID is set, as by torchrun, but not {', '.join(absent)}: start with "
            "torchrun, or unset TORCHELASTIC_RUN_ID to train with one process"
        )
    local_rank = int(os.environ["LOCAL_RANK"])
    store, rank, size = next(dist.rendezvous("env://", timeout=START_TIMEOUT))
    store = fresh_store(store, rank, size)
    try:
        device = local_device(local_rank, int(os.environ["LOCAL_WORLD_SIZE"]))
        dist.init_process_group(
            "gloo", store=store, rank=rank, world_size=size, timeout=LONG_TIMEOUT
        )
        world = World(rank, size, local_rank, device)
        world.check_agreement(
            device.type, lambda ours, theirs: f"one has {theirs}, the other {ours}"
        )
        yield replace(world, update_group=make_update_group(device, timeout))
    except Exception as error:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # torchrun sends it; report the error first
        if store.add("failed", 1) > 1:  # the one that failed first reports why
            raise SystemExit(1) from None
        lost = isinstance(error, dist.DistError) or "gloo" in str(error).lower()
        if lost and not isinstance(error, UserError):
            cause = str(error).strip().split("\n")[0]
            raise UserError(
                f"process {rank} of {size} has lost another one, which died, hangs, or took longer "
                f"than train.timeout ({timeout:g} s): the same command continues from the last "
                f"checkpoint ({cause})"
            ) from None
        raise
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


def make_update_group(device: torch.device, timeout: float) -> dist.ProcessGroup:
    """Return a group of all processes whose collectives time out after `timeout` seconds.

    NCCL starts during the first collective, which may therefore take longer than `timeout`. So one
    collective runs here, and the timeout applies to those that follow. When it has passed, gloo
    raises an error, which `join_processes` explains; NCCL ends the process with its own message.
    """
    backend = "nccl" if device.type == "cuda" else "gloo"
    group = dist.new_group(backend=backend, timeout=START_TIMEOUT)
    dist.all_reduce(torch.zeros(1, device=device), group=group)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    dist.distributed_c10d._set_pg_timeout(timedelta(seconds=timeout), group)
    return group


def fresh_store(store: dist.Store, rank: int, size: int) -> dist.Store:
    """Return a part of torchrun's store that only the processes of this start use.

    After a restart the store still contains the addresses of dead processes (pytorch issue 135712),
    and machines may count restarts differently. So each process draws a random name, and
    waits until all have read the same names.
    """
    store.set(f"name {rank}", uuid4().hex)
    while True:
        names = b"".join(store.get(f"name {other}") for other in range(size))
        seen = hashlib.sha256(names).hexdigest()
        store.set(f"seen {rank}", seen)
        if all(store.get(f"seen {other}") == seen.encode() for other in range(size)):
            return dist.PrefixStore(seen, store)
        time.sleep(0.05)


def local_device(local_rank: int, processes: int) -> torch.device:
    """Return the GPU of this process, or the CPU. Raises UserError if there are too few GPUs."""
    count = torch.cuda.device_count()
    if not count:
        return torch.device("cpu")
    if processes > count:
        raise UserError(
            f"{processes} processes on {socket.gethostname()}, which has {count} GPUs: "
            f"give torchrun --nproc-per-node {count}"
        )
    torch.cuda.set_device(local_rank)
    return torch.device("cuda", local_rank)
