"""Softmax, DropConnect and DynamicConv in one operator (Wu et al. 2019, section 4).

    weight[b, t, h, :] = softmax_K(logits[b, t, h, :]) * mask / (1 - dropout)
    out                = dynamic_conv(x, weight)

DropConnect draws each entry (b, t, h, j) of the mask independently.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from dynconv.kernels import cuda_ops
from dynconv.ops.checks import check_conv
from dynconv.ops.dynamicconv import dynamic_conv
from dynconv.ops.normalize import normalize_kernel
from dynconv.ops.operator import Operator, Rule
from dynconv.value_checks import check_probability


def softmax_conv_loop(x: Tensor, logits: Tensor, mask: Tensor, pad_left: int) -> Tensor:
    """Evaluate the equation one position and one tap at a time: the oracle.

    mask (B, T, H, K) has 0 where DropConnect drops a weight, and 1 / (1 - dropout) elsewhere.
    """
    B, T, C = x.shape
    H, K = logits.shape[2:]
    heads = x.view(B, T, H, C // H)
    rows = []
    for t in range(T):
        largest = logits[:, t].amax(2, keepdim=True)  # subtracted, it keeps exp from overflowing
        e = (logits[:, t] - largest).exp()  # (B, H, K)
        row = torch.zeros_like(heads[:, t])
        for j in range(K):
            s = t + j - pad_left
            if 0 <= s < T:
                weight = e[:, :, j] / e.sum(2) * mask[:, t, :, j]  # (B, H)
                row = row + weight.unsqueeze(2) * heads[:, s]
        rows.append(row.flatten(1))
    return torch.stack(rows, dim=1)


def softmax_conv_masked(x: Tensor, logits: Tensor, pad_left: int, dropout: float) -> Tensor:
    """Run the loop with a mask from PyTorch's generator."""
    mask = F.dropout(torch.ones_like(logits), dropout)
    return softmax_conv_loop(x, logits, mask, pad_left)


def softmax_conv_separate(x: Tensor, logits: Tensor, pad_left: int, dropout: float) -> Tensor:
    """Run softmax, DropConnect and convolution as three operators."""
    weight = F.dropout(normalize_kernel(logits).to(x.dtype), dropout)
    return dynamic_conv(x, weight, pad_left=pad_left)


def softmax_conv_cuda(x: Tensor, logits: Tensor, pad_left: int, dropout: float) -> Tensor:
    """Run one fused kernel, which hashes a seed into the mask."""
    return cuda_ops.softmax_conv(x, logits, draw_seed(x, dropout), dropout, pad_left)


def draw_seed(x: Tensor, dropout: float) -> Tensor | None:
    """Return a seed on the device of x, None without dropout.

    PyTorch draws it there, so nothing waits, and each replay of a CUDA graph gets a new mask.

    A draw takes 3 microseconds of CPU time (AMD EPYC). One draw per forward pass of a model would
    save most of them, but each layer would need its own number and the seed of the pass, also when
    activation checkpointing runs its block a second time; PyTorch restores its generator then.
    """
    return torch.randint(2**63 - 1, (1,), device=x.device) if dropout else None


OPERATOR = Operator(
    "softmax_conv",
    {
        "loop": softmax_conv_masked,
        "separate": softmax_conv_separate,
        "cuda": softmax_conv_cuda,
    },
    (Rule("separate"),),
    transformable_impl="separate",
)


def softmax_conv(
    x: Tensor, logits: Tensor, *, pad_left: int, dropout: float = 0.0, impl: str = "auto"
) -> Tensor:
    """Convolve with the softmax of each position's logits (Wu et al. 2019, section 4).

    x         (B, T, C)     real
    logits    (B, T, H, K)  normalised here over K; channel c uses head c // (C // H)
    pad_left  zeros before position 0: K // 2 in an encoder, K - 1 for a causal decoder
    dropout   probability with which DropConnect drops a weight; pass 0 in eval mode
    returns   (B, T, C)     differentiable in x and logits

    The mask comes from PyTorch's generator for x's device, but implementations use it differently,
    so the same seed gives them different masks. Raises the errors of `dynamic_conv`, and ValueError
    when dropout lies outside [0, 1).
    """
    check_conv(x, logits, pad_left, "BTHK", "logits")
    check_probability("dropout", dropout)
    implementation = OPERATOR.choose(impl, x, x.shape[1], logits.shape[3])
    return implementation(x, logits, pad_left, dropout)
