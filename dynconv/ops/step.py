"""One decoding step of a convolution, from the last K inputs of each row.

out[n, c] = sum_j weight[n, head(c), j] * past[j, row_of[n, j], c]
"""

import torch
from torch import Tensor

from dynconv.kernels import torch_ops
from dynconv.kernels.layout import MIN_VECTOR_CHANNELS
from dynconv.ops.checks import check_conv_step
from dynconv.ops.operator import Operator, Rule


def conv_step_loop(past: Tensor, row_of: Tensor, weight: Tensor) -> Tensor:
    """Evaluate the equation one row and one tap at a time: the oracle."""
    rows = []
    for n in range(len(row_of)):
        row = torch.zeros_like(past[0, 0]).view(weight.shape[1], -1)  # (H, R)
        for j in range(len(past)):
            row = row + weight[n, :, j, None] * past[j, row_of[n, j]].view_as(row)
        rows.append(row.flatten())
    return torch.stack(rows)


def conv_step_gather(past: Tensor, row_of: Tensor, weight: Tensor) -> Tensor:
    """Gather each row's window, then multiply a vector by a matrix per row and head."""
    K = weight.shape[2]
    window = past[torch.arange(K, device=row_of.device), row_of]  # (N, K, C)
    heads = window.unflatten(2, (weight.shape[1], -1))  # (N, K, H, R)
    return torch.einsum("nhk,nkhr->nhr", weight, heads).flatten(1)  # (N, C)


OPERATOR = Operator(
    "conv_step",
    {"loop": conv_step_loop, "gather": conv_step_gather, "cpu": torch_ops.conv_step},
    rules=(Rule("gather"),),
    transformable_impl="gather",
)


def conv_step(past: Tensor, row_of: Tensor, weight: Tensor, *, impl: str = "auto") -> Tensor:
    """Return the next output of each row; not differentiable.

    past      (K, M, C)  the last K slots, oldest first
    row_of    (N, K)     int64: which row of slot j contains the input of row n
    weight    (N, H, K)
    returns   (N, C)
    """
    check_conv_step(past, row_of, weight)
    # The channels of a head fill at least one vector of the C kernel.
    wide = past.shape[2] >= MIN_VECTOR_CHANNELS * weight.shape[1]
    return OPERATOR.choose(impl, past, 1, kernels=wide)(past, row_of, weight)
