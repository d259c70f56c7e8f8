"""Depthwise convolution (Wu et al. 2019, section 2): every channel has its own kernel.

    out[b, t, c] = sum_j weight[c, j] * x[b, t + j - pad_left, c],   x = 0 outside [0, T)

The paper counts j from 1 and writes i + j - ceil((k + 1) / 2): with j -> j + 1 and odd k that is
t + j - k // 2, the centred window.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from dynconv.ops.checks import choose, require_pad_left
from dynconv.ops.dynamicconv import pad_time


def depthwise_conv_loop(x: Tensor, weight: Tensor, pad_left: int) -> Tensor:
    """The oracle: the equation, one output position and one tap at a time."""
    T = x.shape[1]
    rows = []
    for t in range(T):
        row = torch.zeros_like(x[:, t])
        for j in range(weight.shape[1]):
            s = t + j - pad_left
            if 0 <= s < T:
                row = row + weight[:, j] * x[:, s]
        rows.append(row)
    return torch.stack(rows, dim=1)


def depthwise_conv_shifted(x: Tensor, weight: Tensor, pad_left: int) -> Tensor:
    """K shifted copies of the sequence, each scaled and added."""
    T, K = x.shape[1], weight.shape[1]
    padded = pad_time(x, K, pad_left)  # (B, T + K - 1, C)
    return sum(weight[:, j] * padded[:, j : j + T] for j in range(K))


def depthwise_conv_conv1d(x: Tensor, weight: Tensor, pad_left: int) -> Tensor:
    """PyTorch's own convolution with one group for each channel."""
    C, K = weight.shape
    padded = pad_time(x, K, pad_left).transpose(1, 2)  # (B, C, T + K - 1)
    return F.conv1d(padded, weight.unsqueeze(1), groups=C).transpose(1, 2)  # (B, T, C)


IMPLEMENTATIONS = {
    "loop": depthwise_conv_loop,
    "shifted": depthwise_conv_shifted,
    "conv1d": depthwise_conv_conv1d,
}


def depthwise_conv(x: Tensor, weight: Tensor, *, pad_left: int, impl: str = "auto") -> Tensor:
    """Mix each channel's window with the channel's own kernel (Wu et al. 2019, section 2).

    x         (B, T, C)  real
    weight    (C, K)
    pad_left  zeros before position 0: K // 2 in an encoder, K - 1 for a causal decoder
    returns   (B, T, C)  differentiable in x and weight

    Raises ValueError when weight has another number of channels than x, when pad_left lies
    outside [0, K - 1], or when `impl` is unknown.
    """
    if weight.shape[0] != x.shape[2]:
        raise ValueError(f"{weight.shape[0]} kernels for {x.shape[2]} channels: give one a channel")
    require_pad_left(pad_left, weight.shape[1])
    if impl == "auto":
        impl = "conv1d"
    return choose(IMPLEMENTATIONS, impl)(x, weight, pad_left)
