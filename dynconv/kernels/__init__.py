"""Registers the operators' own kernels with PyTorch: C for the CPU and CUDA for GPUs.

`torch_ops` is torch.ops.dynconv: PyTorch calls the C kernels for tensors on the CPU and the CUDA
kernels for tensors on a GPU. schema.py defines the operators and their gradients. C and CUDA are
compiled when they are first needed.
"""

from dynconv.kernels.cpu import call as _on_cpu  # noqa: F401  (importing them registers them)
from dynconv.kernels.cuda import call as _on_cuda  # noqa: F401
from dynconv.kernels.schema import torch_ops

__all__ = ["torch_ops"]
