"""Registers C kernels for the CPU and CUDA kernels for GPUs with PyTorch.

PyTorch then chooses by the device of the tensors that `torch_ops`, torch.ops.dynconv, is called
with; `on_gpu` runs the CUDA kernels without that choice, whose CPU time short kernels do not hide.
schema.py defines the operators and their gradients. Kernels are compiled at first use.
"""

from dynconv.kernels.cpu import call as _on_cpu  # noqa: F401  (importing them registers them)
from dynconv.kernels.cuda.call import on_gpu
from dynconv.kernels.schema import is_transformed, torch_ops

__all__ = ["is_transformed", "on_gpu", "torch_ops"]
