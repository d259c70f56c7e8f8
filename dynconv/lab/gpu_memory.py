"""Tracks what a model allocates on fake tensors, as if it ran on a GPU.

Fake tensors have shapes but no data. The operators of the CPU run on them, and `gpu_memory`
corrects the three differences that matter. On a CPU the peak equals what PyTorch's profiler
measures to the kilobyte; we have not compared it with a GPU's.
"""

import math
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

TAIL_SHARE = 1 / 8
"""share of the tokens in each tail band of an adaptive softmax; by Zipf's law the two tail bands of
WikiText-103 have 9% and 12%"""


class AllocationTracker(TorchDispatchMode):
    """Counts the bytes of all tensors that are alive, fake tensors included."""

    def __init__(self):
        super().__init__()
        self.held = self.peak = 0
        self.followed: set[int] = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is torch.ops.aten._local_scalar_dense.default:
            return 0.0  # TaLK asks how far its windows reach: assume their limit
        if func is torch.ops.aten.nonzero.default:  # which targets belong to a tail band
            mask = args[0]
            return torch.empty(round(mask.numel() * TAIL_SHARE), mask.dim(), dtype=torch.int64)
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor):
                self.follow(tensor.untyped_storage())
        return result

    def follow(self, storage: torch.UntypedStorage) -> None:
        """Count a storage until it is freed; the views of a tensor share one storage."""
        if id(storage) not in self.followed:
            self.followed.add(id(storage))
            self.held += storage.nbytes()
            self.peak = max(self.peak, self.held)
            weakref.finalize(storage, self.forget, id(storage), storage.nbytes())

    def forget(self, storage_id: int, size: int) -> None:
        self.followed.remove(storage_id)
        self.held -= size


def attention_flops(query: Sequence[int], key: Sequence[int], *_, **__) -> int:
    """Return the FLOPs of attention, from the shapes (B, H, T, d_k) and (B, H, S, d_k)."""
    return 4 * math.prod(query) * key[2]


def attention_backward_flops(grad: Sequence[int], query, key, *_, **__) -> int:
    """Return the FLOPs of the backward pass, except those that compute the weights again."""
    return 2 * attention_flops(query, key)


aten = torch.ops.aten
ATTENTION_FLOPS = {
    aten._scaled_dot_product_flash_attention_for_cpu: attention_flops,
    aten._scaled_dot_product_flash_attention_for_cpu_backward: attention_backward_flops,
}
"""formulas for the FLOPs of attention on a CPU, because PyTorch counts them only for the attention
kernels of GPUs"""


@contextmanager
def gpu_memory(precision: str) -> Iterator[None]:
    """Make dropout, softmax and attention on a CPU save for the backward pass what a GPU saves.

    Dropout saves one byte per entry on a GPU, but a floating-point factor on a CPU. Under autocast,
    softmax returns float32 on a GPU, but keeps its input's dtype on a CPU. Attention runs in the
    given precision on a GPU, and its dropout saves nothing, because the same mask is drawn again.

    This replaces the functions: a TorchFunctionMode would end in the backward pass, where blocks
    run again (train.checkpoint_activations).
    """
    dtype = getattr(torch, precision)
    plain_dropout, plain_attention = F.dropout, F.scaled_dot_product_attention
    plain_softmax = Tensor.softmax

    def dropout(x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        if p > 0:
            return torch.native_dropout(x, p, training)[0]
        return plain_dropout(x, p, training, inplace)

    def attention(query: Tensor, key: Tensor, value: Tensor, **options: Any) -> Tensor:
        query, key, value = (z.to(dtype) for z in (query, key, value))
        return plain_attention(query, key, value, **options | {"dropout_p": 0.0})

    def softmax(x: Tensor, *args, **kwargs) -> Tensor:
        return plain_softmax(x.float() if torch.is_autocast_enabled("cpu") else x, *args, **kwargs)

    with (
        patch.object(F, "dropout", dropout),
        patch.object(F, "scaled_dot_product_attention", attention),
        patch.object(Tensor, "softmax", softmax),
    ):
        yield
