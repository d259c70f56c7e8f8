"""The check of the exercise on attention."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from dynconv.layers.attention import attend, split_heads
from dynconv.teach.compare import compare


def window_attention(mine: Callable[..., Tensor]) -> None:
    """mine(q, k, v, H, K) is attention in centred windows: q, k, v (B, T, C), no (T, T) matrix."""

    def theirs(q: Tensor, k: Tensor, v: Tensor, H: int, K: int) -> Tensor:
        at = torch.arange(q.shape[1])
        forbidden = (at - at[:, None]).abs() > K // 2  # (T, T)
        return attend(*(split_heads(z, H) for z in (q, k, v)), forbidden, nn.Identity())

    for T, H, K in ((12, 3, 5), (5, 2, 3), (1, 3, 5), (4, 3, 13)):
        inputs = torch.randn(3, 2, T, 6, generator=torch.Generator().manual_seed(T))
        try:
            compare(partial(mine, H=H, K=K), partial(theirs, H=H, K=K), *inputs)
        except AssertionError as error:
            raise AssertionError(f"T = {T}, H = {H}, K = {K}: {error}") from None
    T, sizes = 500, []

    def pack(tensor: Tensor) -> Tensor:
        sizes.append(tensor.untyped_storage().nbytes())
        return tensor

    inputs = [x.clone().requires_grad_() for x in torch.randn(3, 1, T, 6)]
    with saved_tensors_hooks(pack, lambda tensor: tensor):
        mine(*inputs, H=2, K=3)
    if max(sizes) >= T * T:  # even a mask of bools has as many
        raise AssertionError(f"T = {T}: keeps {max(sizes):,} bytes in one piece, a T x T matrix")
    print("right: values and 3 gradients agree on 4 cases, and no (T, T) matrix is kept")
