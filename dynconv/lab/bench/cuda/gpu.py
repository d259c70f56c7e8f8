"""Measures on a GPU: time of CUDA graphs, memory, time in each kernel."""

import gc
import subprocess
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from shutil import which

import torch

from dynconv.kernels.cuda.build import cupy


class Gpu:
    """Measures on the current GPU, on a stream of its own: graphs cannot be captured on another."""

    def __init__(self):
        self.device = torch.device("cuda", torch.cuda.current_device())
        properties = torch.cuda.get_device_properties(self.device)
        self.name = properties.name
        self.stream = torch.cuda.Stream()
        self.rubbish = torch.zeros(properties.L2_cache_size, device=self.device)  # 4 times L2
        self.total = torch.zeros(1, device=self.device)
        torch.cuda.set_per_process_memory_fraction(0.5)  # beyond it, OutOfMemoryError
        torch.cuda.synchronize()
        self.fresh()

    def about(self) -> dict:
        """Return the device and versions that the numbers depend on."""
        query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        found = which(query[0]) and subprocess.run(query, capture_output=True, text=True).stdout
        more = {"cuda": torch.version.cuda, "cupy": cupy().__version__}
        driver = {"driver": found.split()[0]} if found else {}
        return {"device": self.name, "versions": more | driver}

    def working(self):
        """Return the context in which all work is done."""
        return torch.cuda.stream(self.stream)

    def fresh(self) -> None:
        """Start a new memory pool for the next graphs, when the ones before are gone.

        Its graphs share memory: one plays after the other, and none reads what another wrote.
        """
        gc.collect()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        self.pool = torch.cuda.graph_pool_handle()

    def used(self) -> int:
        """Return the bytes of all tensors."""
        return torch.cuda.memory_allocated()

    def peak(self, call: Callable[[], object]) -> int:
        """Return the most bytes of tensors during a call."""
        torch.cuda.reset_peak_memory_stats()
        call()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated()

    def capture(self, call: Callable[[], object]) -> tuple[Callable[[], object], str | None]:
        """Return the call as a graph and None; or the call itself and why it is not captured.

        What waits for the GPU cannot be captured. That is tested before, because a failed capture
        leaves the allocator and the generator as if it went on.
        """
        try:
            torch.cuda.set_sync_debug_mode("error")
            call()
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as why:
            return call, f"not captured, timed with Python's overhead: {first_line(why)}"
        finally:
            torch.cuda.set_sync_debug_mode("default")
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, pool=self.pool, stream=self.stream):
                call()
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as why:
            self.pool = torch.cuda.graph_pool_handle()
            # An empty capture that ends well frees the generator; the other's memory is lost.
            with suppress(RuntimeError):
                with torch.cuda.graph(torch.cuda.CUDAGraph(), stream=self.stream):
                    self.total.zero_()
            return call, f"not captured, timed with Python's overhead: {first_line(why)}"

        def play(reads=call) -> None:
            """`reads` keeps alive what the graph reads: it knows addresses alone."""
            graph.replay()

        play()
        torch.cuda.synchronize()  # uploaded; and what is wrong is told here
        return play, None

    def seconds(self, play: Callable[[], object]) -> float:
        """Return the seconds of one replay with a cold L2.

        Writing puts out what is there; reading then has it written back before the clock starts.
        Meanwhile Python gets ahead of the GPU.
        """
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self.rubbish.fill_(1)
        torch.sum(self.rubbish, dim=0, keepdim=True, out=self.total)
        start.record()
        play()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) / 1e3

    def kernel_times(self, step: Callable[[], object], steps: int) -> dict[str, float]:
        """Return the microseconds that a step spends in each kernel."""
        from torch.autograd import DeviceType
        from torch.profiler import ProfilerActivity, profile

        torch.cuda.synchronize()  # what was started before is not counted
        with profile(activities=[ProfilerActivity.CUDA]) as profiler:
            for _ in range(steps):
                step()
            torch.cuda.synchronize()
        spent: dict[str, float] = defaultdict(float)
        for event in profiler.events():
            if event.device_type == DeviceType.CUDA and not event.is_user_annotation:
                spent[event.name] += event.time_range.elapsed_us() / steps
        return spent


def first_line(why: Exception) -> str:
    """Return the first line of an error's message, or its type if there is no message."""
    return (str(why).strip() or type(why).__name__).splitlines()[0][:200]
