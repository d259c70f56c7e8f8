"""Registers C kernels for the CPU and CUDA kernels for GPUs with PyTorch.

PyTorch then chooses by the device of the tensors that `torch_ops`, torch.ops.dynconv, is called
with. schema.py defines the operators and their gradients. Kernels are compiled at first use.
"""

from dynconv.kernels.cpu import call as _on_cpu  # noqa: F401  (importing them registers them)
from dynconv.kernels.cuda import call as _on_cuda  # noqa: F401
from dynconv.kernels.schema import torch_ops

__all__ = ["torch_ops"]
