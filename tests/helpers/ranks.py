"""Processes as torchrun starts them, without the seconds in which each of them loads PyTorch."""

import multiprocessing
import signal
import sys
from pathlib import Path
from subprocess import CompletedProcess
from uuid import uuid4

from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, Std
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

TRAIN = "import sys; from dynconv import cli; sys.exit(cli.main(['train', *sys.argv[1:]]))"
"""the program that is `dynconv train`"""
LIMIT = 120
"""seconds after which TimeoutError ends all ranks"""

# what a process that trains imports; optimizers load torch._dynamo when the first one is made
multiprocessing.set_forkserver_preload(["dynconv.cli", "dynconv.train", "torch._dynamo"])


def run_ranks(size: int, folder: Path, program: str, *arguments) -> CompletedProcess:
    """Run a program's text on `size` ranks, by the agent that torchrun itself runs.

    So they have torchrun's rendezvous and environment, and end together when one fails. But they
    are forked from a process in which PyTorch is loaded, and what they print goes to a new folder
    below `folder`.
    """
    logs = folder / f"{uuid4().hex}"
    logs.mkdir()
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=size,
        run_id=logs.name,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        max_restarts=0,
        start_method="forkserver",
        logs_specs=DefaultLogsSpecs(log_dir=str(logs), redirects=Std.ALL),
    )
    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(LIMIT)
    try:
        elastic_launch(config, execute)(program, *map(str, arguments))
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


def give_up(*_) -> None:
    raise TimeoutError(f"ranks that run for longer than {LIMIT} s")


def execute(program: str, *arguments: str) -> None:
    """Run the program as Python runs a script."""
    sys.argv[1:] = arguments
    exec(compile(program, "script.py", "exec"), {"__name__": "__main__"})
