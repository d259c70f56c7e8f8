"""Computes softmax, DropConnect and DynamicConv in one operator (Wu et al. 2019, section 4).

    weight[b, t, h, :] = softmax_K(logits[b, t, h, :]) * mask / (1 - dropout)
    out                = dynamic_conv(x, weight)

DropConnect draws each entry (b, t, h, j) of the mask independently.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from dynconv.kernels import torch_ops
from dynconv.ops.auto import Implementations, choose
from dynconv.ops.checks import check_conv
from dynconv.ops.dynamicconv import dynamic_conv
from dynconv.ops.normalize import normalize_kernel


def conv_separate(x: Tensor, logits: Tensor, pad_left: int, dropout: float) -> Tensor:
    """Run softmax, DropConnect and convolution as three operators."""
    weight = F.dropout(normalize_kernel(logits).to(x.dtype), dropout)
    return dynamic_conv(x, weight, pad_left=pad_left)


def conv_cuda(x: Tensor, logits: Tensor, pad_left: int, dropout: float) -> Tensor:
    """Run one fused kernel, which hashes a seed into the mask.

    PyTorch draws the seed on the GPU, so each replay of a CUDA graph gets a new mask.
    """
    seed = torch.randint(2**63 - 1, (1,), device=x.device) if dropout else None
    return torch_ops.conv_softmax(x, logits, seed, dropout, pad_left)


IMPLEMENTATIONS: Implementations = {"separate": conv_separate, "cuda": conv_cuda}


def dynamic_conv_softmax(
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
    if not 0 <= dropout < 1:
        raise ValueError(f"dropout {dropout} lies outside [0, 1)")
    implementation = choose("dynamic_conv_softmax", IMPLEMENTATIONS, impl, x, logits.shape[3])
    return implementation(x, logits, pad_left, dropout)
