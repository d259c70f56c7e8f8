"""Measures on a GPU: the time of CUDA graphs, and memory."""

import gc
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from shutil import which
from typing import NamedTuple

import torch
from torch import Tensor

from dynconv.kernels.cuda.build import cupy
from dynconv.lab.bench.measure import Measurement, first_line

REPLAY_TIME = 1e-4
"""seconds of one replay that are enough: what a graph costs by itself is a few microseconds"""


class Replay(NamedTuple):
    """A graph of one or more calls, which it also keeps alive with all that they read.

    The graph itself knows only addresses.
    """

    graph: torch.cuda.CUDAGraph
    calls: Sequence[Callable[[], object]]

    def __call__(self) -> None:
        self.graph.replay()


def copy_all(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return copies of the tensors, with the same strides, elsewhere in memory."""
    return [z.detach().clone().requires_grad_(z.requires_grad) for z in tensors]


class GpuClock:
    """Measures CUDA graphs on the current GPU, captured and replayed on a side stream.

    A short call is captured several times, because one launch of a tiny kernel would measure the
    launch. Each call in the graph reads inputs of its own, which L2 does not hold yet, and writes
    an output of its own.
    """

    slow_seconds = 0.05
    min_turns = 3

    def __init__(self):
        self.device = torch.device("cuda", torch.cuda.current_device())
        properties = torch.cuda.get_device_properties(self.device)
        self.name = properties.name
        self.stream = torch.cuda.Stream()
        self.filler = torch.zeros(properties.L2_cache_size, device=self.device)  # 4 times L2
        self.total = torch.zeros(1, device=self.device)
        torch.cuda.set_per_process_memory_fraction(0.5)  # beyond it, OutOfMemoryError
        torch.cuda.synchronize()
        self.new_pool()

    def about(self) -> dict:
        """Return the device and versions that the numbers depend on."""
        query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        answer = which(query[0]) and subprocess.run(query, capture_output=True, text=True).stdout
        versions = {"cuda": torch.version.cuda, "cupy": cupy().__version__}
        driver = {"driver": answer.split()[0]} if answer else {}
        return {"device": self.name, "versions": versions | driver}

    def new_pool(self) -> None:
        """Free the previous graphs and start a new memory pool for the next ones.

        Graphs of a pool may share memory: they replay one at a time, and none reads the output of
        another.
        """
        gc.collect()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        self.pool = torch.cuda.graph_pool_handle()

    def prepare(self, run: Measurement) -> None:
        """Warm up, count the memory of a call, and capture a graph of at least REPLAY_TIME."""
        assert run.make is not None  # else its note says why there is nothing to time
        run.make(run.inputs)()  # compiles, chooses and allocates what later calls reuse
        before = torch.cuda.memory_allocated()
        call = run.make(run.inputs)
        torch.cuda.reset_peak_memory_stats()
        call()
        torch.cuda.synchronize()
        run.peak = torch.cuda.max_memory_allocated() - before - run.kept
        run.call, run.note = self.capture(call)
        if run.note is None and (fit := int(REPLAY_TIME / self.seconds(run.call))) > 1:
            others = [run.make(copy_all(run.inputs)) for _ in range(fit - 1)]
            run.call, run.note = self.capture(call, *others)

    def capture(self, *calls: Callable[[], object]) -> tuple[Callable[[], object], str | None]:
        """Return the calls as a graph and None; or the first call and why it is not captured.

        A call that synchronises with the GPU cannot be captured. We test for that first, because a
        failed capture leaves the allocator and the random generator in capture mode.
        """
        graph = torch.cuda.CUDAGraph()
        capturing = False
        try:
            torch.cuda.set_sync_debug_mode("error")
            for call in calls:
                call()
            torch.cuda.set_sync_debug_mode("default")
            capturing = True
            with torch.cuda.graph(graph, pool=self.pool, stream=self.stream):
                outputs = [call() for call in calls]  # all alive, so none has another's memory
            del outputs
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            if capturing:
                self.pool = torch.cuda.graph_pool_handle()
                # An empty capture that ends well frees the generator; the other's memory is lost.
                with suppress(RuntimeError):
                    with torch.cuda.graph(torch.cuda.CUDAGraph(), stream=self.stream):
                        self.total.zero_()
            return calls[0], f"not captured, timed with Python's overhead: {first_line(error)}"
        finally:
            torch.cuda.set_sync_debug_mode("default")
        play = Replay(graph, calls)
        play()
        torch.cuda.synchronize()  # the graph is uploaded, and a fault in it is reported here
        return play, None

    def seconds(self, play: Callable[[], object]) -> float:
        """Return the seconds of one call, from one replay of all that the graph has on a cold L2.

        Writing the filler evicts what is in L2, and reading it makes the GPU write it back before
        the clock starts. Meanwhile Python queues the replay.
        """
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self.filler.fill_(1)
        torch.sum(self.filler, dim=0, keepdim=True, out=self.total)
        start.record()
        play()
        end.record()
        end.synchronize()
        calls = len(play.calls) if isinstance(play, Replay) else 1
        return start.elapsed_time(end) / 1e3 / calls
