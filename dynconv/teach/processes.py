"""Processes that a notebook starts once; each call then runs one function on several of them."""

import ast
import importlib
import inspect
import multiprocessing
import os
import pickle
import textwrap
import time
import traceback
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.connection import Connection
from types import FunctionType, ModuleType
from typing import Any

import torch
import torch.distributed as dist

START = 180.0
"""seconds in which a process must start, even on a busy machine"""
LIMIT = 90.0
"""seconds after which a call fails and its processes are killed"""
WAIT = 40.0
"""seconds after which a collective inside a call times out"""


class Processes:
    """`run(n, function, ...)` calls a function in n processes that communicate through gloo.

    Each process has one thread, is started once and serves all calls. During a call,
    `torch.distributed` is set up as under torchrun: with a rank, a world size and a default group.
    No port is fixed. What a process prints is discarded, so the function returns its results.
    """

    def __init__(self, most: int = 4):
        self.most = most
        self.store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        self.calls = 0
        self.ends: list[Connection] = []
        self.children: list[Any] = []
        self.ready = 0
        """the number of processes that have reported that they have started"""

    def start(self, size: int) -> None:
        """Start processes until there are `size`, without waiting for them to be ready."""
        if not 1 <= size <= self.most:
            raise ValueError(f"size {size}: these are {self.most} processes")
        spawn = multiprocessing.get_context("spawn")
        while len(self.children) < size:
            mine, theirs = spawn.Pipe()
            child = spawn.Process(target=serve, args=(theirs, self.store.port), daemon=True)
            child.start()
            theirs.close()
            self.ends.append(mine)
            self.children.append(child)

    def stop(self) -> None:
        """Kill all processes; the next call starts new ones."""
        for child in self.children:
            child.kill()
        for child, end in zip(self.children, self.ends, strict=True):
            child.join()
            end.close()
        self.children, self.ends, self.ready = [], [], 0

    def run(
        self, size: int, function: Callable, *arguments, limit: float = LIMIT, wait: float = WAIT
    ) -> list:
        """Return what `function(*arguments)` returns on each of `size` ranks, ordered by rank.

        The function may use other functions, modules and values of its notebook. Raises
        RuntimeError for the lowest rank that failed, with its error, and TimeoutError after `limit`
        seconds.
        """
        self.start(size)
        self.calls += 1
        call = pickle.dumps((collect_definitions(function), function.__name__, arguments))
        answers: list[tuple[Any, str | None]] = []
        try:
            end = time.monotonic() + START
            while self.ready < size:
                self._receive(self.ready, end, f"start within {START:g} s")
                self.ready += 1
            end = time.monotonic() + limit
            for rank in range(size):
                self.ends[rank].send_bytes(pickle.dumps((self.calls, rank, size, wait, call)))
            for rank in range(size):
                answers.append(self._receive(rank, end, f"end within {limit:g} s"))
        except (EOFError, ConnectionError):
            self.stop()
            raise RuntimeError(f"process {len(answers)} of {size} died") from None
        except BaseException:  # ctrl-C too: the next call must not receive this call's answers
            self.stop()
            raise
        for rank, (_, error) in enumerate(answers):
            if error:
                raise RuntimeError(f"process {rank} of {size}: {error}")
        return [result for result, _ in answers]

    def _receive(self, rank: int, end: float, what: str) -> Any:
        """Return the next message of a process.

        Raises TimeoutError if there is none until `end`.
        """
        if not self.ends[rank].poll(max(0, end - time.monotonic())):
            raise TimeoutError(f"process {rank} did not {what}")
        return pickle.loads(self.ends[rank].recv_bytes())


def collect_definitions(function: FunctionType) -> tuple[list[str], dict[str, str], dict[str, Any]]:
    """Return a function and all it uses: sources of functions, names of modules, and values.

    A notebook cannot be imported by another process, so its functions travel as source.
    """
    sources: dict[str, str] = {}
    modules: dict[str, str] = {}
    values: dict[str, Any] = {}

    def follow(used: FunctionType) -> None:
        source = sources[used.__name__] = textwrap.dedent(inspect.getsource(used))
        names = {node.id for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name)}
        for name in names & used.__globals__.keys() - sources.keys():
            value = used.__globals__[name]
            if isinstance(value, ModuleType):
                modules[name] = value.__name__
            elif isinstance(value, FunctionType) and value.__module__ == function.__module__:
                follow(value)
            else:
                values[name] = value

    follow(function)
    return list(sources.values()), modules, values


def serve(end: Connection, port: int) -> None:
    """Run in a process: answer calls until the notebook is gone."""
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)  # gloo prints on its own
    os.dup2(quiet, 2)
    torch.set_num_threads(1)
    store = dist.TCPStore("127.0.0.1", port, is_master=False)
    end.send_bytes(pickle.dumps("ready"))
    while True:
        try:
            number, *rest = pickle.loads(end.recv_bytes())
        except (EOFError, ConnectionError):
            return
        try:
            result = run_on_rank(dist.PrefixStore(f"{number}", store), *rest)
            error = None
        except Exception as problem:
            last = traceback.extract_tb(problem.__traceback__)[-1].name
            result = None
            error = f"{type(problem).__name__} in {last}: {problem}"
        finally:
            if dist.is_initialized():
                dist.destroy_process_group()
        end.send_bytes(pickle.dumps((result, error)))


def run_on_rank(store: dist.Store, rank: int, size: int, wait: float, call: bytes) -> Any:
    """Join the process group and return what the function returns on this rank."""
    (sources, modules, values), name, arguments = pickle.loads(call)
    space = {"__name__": "notebook", **values}
    space |= {name: importlib.import_module(module) for name, module in modules.items()}
    for source in sources:
        exec(source, space)
    time_out = timedelta(seconds=wait)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=time_out)
    return space[name](*arguments)
