"""Registers C kernels for the CPU and CUDA kernels for GPUs with PyTorch.

`torch_ops`, which is torch.ops.dynconv, lets PyTorch choose a kernel by the device of the tensors.
`cuda_ops` calls the CUDA kernels directly, because for a short kernel PyTorch's choice takes longer
than the kernel itself. torch_library.py defines the operators and their gradients. Kernels are
compiled at first use.
"""

from dynconv.kernels.cpu import call as _on_cpu  # noqa: F401  (importing them registers them)
from dynconv.kernels.cuda.call import cuda_ops
from dynconv.kernels.torch_library import is_transformed, torch_ops

__all__ = ["cuda_ops", "is_transformed", "torch_ops"]
