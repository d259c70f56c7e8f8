"""Launches the kernels that a lesson writes: on a GPU or the simulator, traced or timed."""

from typing import NamedTuple

import numpy as np
import torch

from dynconv.kernels.cuda import build
from dynconv.kernels.cuda.call import convert, cupy_stream
from dynconv.lab.simulate.launch import compile_for_cpu
from dynconv.lab.simulate.trace import trace

HEADER = "number.cuh"
"""the package's header that comes before a kernel unless it names another: DYNAMIC_SHARED, Pack"""


class KernelLaunch(NamedTuple):
    """One launch of a lesson's kernel.

    name    its name expression, such as "copy<float>"
    args    tensors and numbers in the order of its parameters
    shared  bytes of dynamic shared memory per block
    header  the file of the package that comes before the source
    """

    source: str
    name: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    args: tuple
    shared: int = 0
    header: str = HEADER

    def _code(self) -> str:
        return build.inline_headers(self.header) + self.source

    def run(self, order: str | int = "forward") -> None:
        """Run the kernel where its tensors are; on the CPU, threads of a block run in `order`."""
        values = tuple(map(convert, self.args))
        code = self._code()
        device = self.args[0].device
        if device.type == "cpu":
            kernel = compile_for_cpu(code, self.name)
            kernel(self.grid, self.block, values, shared_mem=self.shared, order=order)
            return
        kernel = build.compile_for_gpu(code, self.name, device.index)
        with cupy_stream(torch.cuda.current_stream().cuda_stream, device.index):
            kernel(self.grid, self.block, values, shared_mem=self.shared)

    def trace(self) -> np.ndarray:
        """Return the kernel's memory accesses in the simulator; see `lab.simulate.trace`."""
        args = [z if isinstance(z, torch.Tensor) else convert(z) for z in self.args]
        return trace(self._code(), self.name, self.grid, self.block, args, self.shared)

    def microseconds(self, rounds: int = 30) -> np.ndarray:
        """Return median, minimum and maximum time of the kernel on the GPU, with a cold L2."""
        from dynconv.lab.bench.kernels.gpu_clock import GpuClock

        clock = GpuClock()
        self.run()  # compiles
        play, note = clock.capture(self.run)
        if note:
            raise RuntimeError(note)
        return 1e6 * np.percentile([clock.seconds(play) for _ in range(rounds)], [50, 0, 100])
