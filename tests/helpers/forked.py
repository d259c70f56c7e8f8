"""Processes forked from one that has imported PyTorch, Matplotlib and Jupyter's kernel.

Starting Python with them takes 2 to 4 s of processor time, each time.
"""

import multiprocessing
import os
import sys
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from pathlib import Path

CONTEXT = multiprocessing.get_context("forkserver")
# Optimizers load torch._dynamo when the first one is made.
CONTEXT.set_forkserver_preload(
    ["dynconv.cli", "dynconv.train", "torch._dynamo", "matplotlib.pyplot", "ipykernel.kernelapp"]
)


class Forked:
    """A call of a function in such a process, which one handles like a `subprocess.Popen`.

    output  the files, by descriptor, to which it prints; what it prints elsewhere is lost
    """

    stdin = stdout = stderr = None

    def __init__(
        self,
        function: Callable,
        *arguments,
        output: Mapping[int, Path] = {},  # noqa: B006
        env: Mapping[str, str] | None = None,
        cwd: Path | str = ".",
    ):
        started, ready = CONTEXT.Pipe(duplex=False)
        place = dict(os.environ if env is None else env), os.path.abspath(cwd), dict(output)
        self.process = CONTEXT.Process(target=begin, args=(ready, *place, function, *arguments))
        self.process.start()
        ready.close()
        started.recv()
        self.pid = self.process.pid

    def poll(self) -> int | None:
        return self.process.exitcode

    def wait(self, timeout: float | None = None) -> int | None:
        self.process.join(timeout)
        return self.process.exitcode

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        self.process.kill()

    def terminate(self) -> None:
        self.process.terminate()


def begin(ready: Connection, env: dict, cwd: str, output: dict, function: Callable, *arguments):
    """Become what a new process would be: with its own session, environment, folder and output."""
    os.setsid()
    for descriptor, path in ({1: os.devnull, 2: os.devnull} | output).items():
        with open(path, "wb") as file:
            os.dup2(file.fileno(), descriptor)
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    ready.send(None)
    ready.close()
    function(*arguments)


def execute(program: str, *arguments: str) -> None:
    """Run the program as Python runs a script."""
    sys.argv[1:] = arguments
    exec(compile(program, "script.py", "exec"), {"__name__": "__main__"})


def start_kernel(command: list[str], cwd: str, env: dict[str, str], **_) -> Forked:
    """Start a notebook's kernel, as `jupyter_client.launch_kernel` does."""
    return Forked(kernel, command[command.index("-f") :], env=env, cwd=cwd)


def kernel(arguments: list[str]) -> None:
    """Run Jupyter's kernel, which ends when the process from which it is forked does."""
    import matplotlib
    from ipykernel.kernelapp import IPKernelApp

    os.environ["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"
    matplotlib.rcParams["backend"] = os.environ["MPLBACKEND"]
    sys.argv[1:] = arguments
    IPKernelApp.launch_instance([*arguments, f"--IPKernelApp.parent_handle={os.getppid()}"])
