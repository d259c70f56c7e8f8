"""Launches the kernels that a lesson writes: on a GPU or the simulator, traced or timed."""

from functools import cache
from typing import NamedTuple

import numpy as np
import torch

from dynconv.kernels.cuda import build
from dynconv.kernels.cuda.call import Stream, convert
from dynconv.lab import simulate
from dynconv.lab.simulate.trace import trace

HEADER = "number.cuh"
"""the package's header that comes before every kernel: DYNAMIC_SHARED and Pack"""


class KernelLaunch(NamedTuple):
    """Describes one launch of a lesson's kernel.

    name    its name expression, such as "copy<float>"
    args    tensors and numbers in the order of its parameters
    shared  bytes of dynamic shared memory per block
    """

    source: str
    name: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    args: tuple
    shared: int = 0

    def run(self, order: str | int = "forward") -> None:
        """Run the kernel where its tensors are; on the CPU, threads of a block run in `order`."""
        values = tuple(map(convert, self.args))
        if not self.args[0].is_cuda:
            kernel = simulated(self.source, self.name)
            kernel(self.grid, self.block, values, shared_mem=self.shared, order=order)
            return
        kernel = compile_kernel(self.source, self.name)
        stream = Stream(torch.cuda.current_stream().cuda_stream)
        with build.cupy().cuda.Stream.from_external(stream):
            kernel(self.grid, self.block, values, shared_mem=self.shared)

    def trace(self) -> np.ndarray:
        """Return the kernel's memory accesses in the simulator; see `lab.simulate.trace`."""
        args = [z if isinstance(z, torch.Tensor) else convert(z) for z in self.args]
        code = build.code(HEADER) + self.source
        return trace(code, self.name, self.grid, self.block, args, self.shared)

    def microseconds(self, rounds: int = 30) -> np.ndarray:
        """Return the median, least and most time of the kernel alone on the GPU, with a cold L2."""
        from dynconv.lab.bench.kernels.gpu_clock import GpuClock

        clock = GpuClock()
        self.run()  # compiles
        play, note = clock.capture(self.run)
        if note:
            raise RuntimeError(note)
        return 1e6 * np.percentile([clock.seconds(play) for _ in range(rounds)], [50, 0, 100])


@cache
def simulated(source: str, name: str) -> simulate.Function:
    """Return the kernel, compiled for this CPU."""
    return simulate.Module(build.code(HEADER) + source, [name]).get_function(name)


@cache
def compile_kernel(source: str, name: str):
    """Return the kernel, compiled for the current GPU."""
    code, options = build.code(HEADER) + source, ("-std=c++17",)
    module = build.cupy().RawModule(code=code, options=options, name_expressions=[name])
    return module.get_function(name)
