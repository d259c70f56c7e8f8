"""Counts what an answer costs: operations and memory."""

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode


class Cost(TorchDispatchMode):
    """Counts the tensor operations in a `with` block, and the bytes of the largest result."""

    operations = largest = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        self.operations += 1
        if isinstance(out, Tensor):
            self.largest = max(self.largest, out.untyped_storage().nbytes())
        return out
