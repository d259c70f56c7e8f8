"""Processes as torchrun starts them, without the seconds in which each of them loads PyTorch."""

import signal
from pathlib import Path
from subprocess import CompletedProcess
from uuid import uuid4

from helpers.forked import Forked, execute
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, Std
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

TRAIN = "import sys; from dynconv import cli; sys.exit(cli.main(['train', *sys.argv[1:]]))"
"""the program that is `dynconv train`"""
LIMIT = 120
"""seconds after which TimeoutError ends all ranks"""


def run_ranks(size: int, folder: Path, program: str, *arguments, restarts=0) -> CompletedProcess:
    """Run a program's text on `size` ranks, by the agent that torchrun itself runs.

    So they have torchrun's rendezvous and environment, and end together when one fails. But they
    are forked from a process in which PyTorch is loaded, and what they print goes to a new folder
    below `folder`.
    """
    logs = folder / f"{uuid4().hex}"
    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(LIMIT)
    try:
        launch(size, logs, "forkserver", program, *arguments, restarts=restarts)
        failed = 0
    except ChildFailedError:
        failed = 1
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    out, error = (
        "".join(path.read_text(encoding="utf-8") for path in sorted(logs.rglob(f"{name}.log")))
        for name in ("stdout", "stderr")
    )
    return CompletedProcess(arguments, failed, out, error)


def launch(size: int, logs: Path, method: str, program: str, *arguments, restarts=0) -> None:
    """Run the agent in this process; ChildFailedError if the ranks fail."""
    logs.mkdir()
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=size,
        run_id=logs.name,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        max_restarts=restarts,
        start_method=method,
        logs_specs=DefaultLogsSpecs(log_dir=str(logs), redirects=Std.ALL),
    )
    elastic_launch(config, execute)(program, *map(str, arguments))


def start_training(size: int, error: Path, *arguments) -> Forked:
    """Start `dynconv train` in one process, or on several ranks, which are the agent's children."""
    if size == 1:
        return Forked(execute, TRAIN, *map(str, arguments), output={2: error})
    logs = error.with_name(uuid4().hex)
    return Forked(launch, size, logs, "fork", TRAIN, *arguments, output={2: error})


def give_up(*_) -> None:
    raise TimeoutError(f"ranks that run for longer than {LIMIT} s")
