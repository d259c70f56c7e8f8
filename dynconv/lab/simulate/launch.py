"""Runs the plans of the CUDA kernels on CPU tensors, by the simulator."""

from functools import cache

import numpy as np
from torch import Tensor

from dynconv.kernels.cuda.build import inline_headers
from dynconv.kernels.cuda.call import Kernels, Values
from dynconv.kernels.cuda.plan import Launch
from dynconv.lab.simulate.simulator import Function, Module


def launch_on_cpu(launch: Launch, values: Values, tensors: list[Tensor]) -> None:
    """Run one launch to its end; KernelFault if it is wrong, ValueError for tensors of a GPU."""
    for z in tensors:
        if z.device.type != "cpu":
            raise ValueError(f"a tensor is on {z.device}, the simulator runs on the CPU: .cpu()")
    function = compile_for_cpu(inline_headers(launch.source), launch.kernel)
    scalars = [np.uint64(z) if isinstance(z, int) else z for z in values]
    function((launch.blocks,), launch.block, scalars, shared_mem=launch.shared)


@cache
def compile_for_cpu(program: str, kernel: str) -> Function:
    """Return a kernel of a program, CUDA source, compiled for this CPU."""
    return Module(program, [kernel]).get_function(kernel)


kernels = Kernels(launch_on_cpu)
"""the operators of torch.ops.dynconv, by their CUDA kernels, for CPU tensors"""
