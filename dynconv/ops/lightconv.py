"""LightConv (Wu et al. 2019, section 3): one kernel for each head, the same at every position.

    out[b, t, c] = sum_j weight[head(c), j] * x[b, t + j - pad_left, c],   x = 0 outside [0, T)
"""

import torch
from torch import Tensor

from dynconv.ops.checks import choose, require_heads, require_pad_left
from dynconv.ops.depthwise import depthwise_conv_conv1d
from dynconv.ops.dynamicconv import (
    BAND_LIMIT,
    dynamic_conv_band,
    dynamic_conv_shifted,
    dynamic_conv_unfold,
)


def light_conv_loop(x: Tensor, weight: Tensor, pad_left: int) -> Tensor:
    """The oracle: the equation, one output position and one tap at a time."""
    T, C = x.shape[1:]
    H, K = weight.shape
    rows = []
    for t in range(T):
        row = torch.zeros_like(x[:, t])
        for j in range(K):
            s = t + j - pad_left
            if 0 <= s < T:
                row = row + weight[:, j].repeat_interleave(C // H) * x[:, s]
        rows.append(row)
    return torch.stack(rows, dim=1)


def same_kernel(x: Tensor, weight: Tensor) -> Tensor:
    """LightConv is the DynamicConv whose kernel is the same everywhere: (H, K) to (B, T, H, K)."""
    return weight.expand(*x.shape[:2], *weight.shape)


def light_conv_unfold(x: Tensor, weight: Tensor, pad_left: int) -> Tensor:
    """All windows at once; see `dynamic_conv_unfold`."""
    return dynamic_conv_unfold(x, same_kernel(x, weight), pad_left)


def light_conv_band(x: Tensor, weight: Tensor, pad_left: int) -> Tensor:
    """A Toeplitz band matrix for each head; see `dynamic_conv_band`."""
    return dynamic_conv_band(x, same_kernel(x, weight), pad_left)


def light_conv_shifted(x: Tensor, weight: Tensor, pad_left: int) -> Tensor:
    """K shifted copies, scaled and added; see `dynamic_conv_shifted`."""
    return dynamic_conv_shifted(x, same_kernel(x, weight), pad_left)


def light_conv_conv1d(x: Tensor, weight: Tensor, pad_left: int) -> Tensor:
    """PyTorch's depthwise convolution, each head's kernel repeated for its C / H channels."""
    repeats = x.shape[2] // weight.shape[0]
    return depthwise_conv_conv1d(x, weight.repeat_interleave(repeats, dim=0), pad_left)


IMPLEMENTATIONS = {
    "loop": light_conv_loop,
    "unfold": light_conv_unfold,
    "band": light_conv_band,
    "shifted": light_conv_shifted,
    "conv1d": light_conv_conv1d,
}


def light_conv(x: Tensor, weight: Tensor, *, pad_left: int, impl: str = "auto") -> Tensor:
    """Mix each position's window with the kernel of its head (Wu et al. 2019, section 3).

    x         (B, T, C)  real
    weight    (H, K)     already normalised over K; channel c uses row c // (C // H)
    pad_left  zeros before position 0: K // 2 in an encoder, K - 1 for a causal decoder
    returns   (B, T, C)  differentiable in x and weight

    Raises ValueError when H does not divide C, when pad_left lies outside [0, K - 1], or when
    `impl` is unknown.
    """
    require_heads(weight.shape[0], x.shape[2])
    require_pad_left(pad_left, weight.shape[1])
    if impl == "auto":
        impl = "band" if x.shape[1] <= BAND_LIMIT else "conv1d"
    return choose(IMPLEMENTATIONS, impl)(x, weight, pad_left)
