"""Runs CUDA kernels on the CPU, without a GPU.

simulator.py  compiles CUDA source for the CPU, and checks what a GPU leaves undefined
launch.py     runs the plans of dynconv.kernels.cuda by it: `kernels`
trace.py      records each access to memory, and sums them up
"""

from dynconv.lab.simulate.launch import kernels
from dynconv.lab.simulate.simulator import (
    CompileError,
    Function,
    KernelFault,
    Module,
    why_unavailable,
)

__all__ = ["CompileError", "Function", "KernelFault", "Module", "kernels", "why_unavailable"]
