"""DynamicConv (Wu et al. 2019, section 4): every position mixes its window with its own kernel.

    out[b, t, c] = sum_j weight[b, t, head(c), j] * x[b, t + j - pad_left, c],  x = 0 outside [0, T)

equation (11.3) of the book, with head(c) = c // (C // H): neighbouring channels share a kernel.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from dynconv.kernels.registered import ops as kernels
from dynconv.ops.auto import choose
from dynconv.ops.checks import check_conv
from dynconv.ops.recompute import dynamic_conv_blocked, dynamic_conv_taps


def dynamic_conv_loop(x: Tensor, weight: Tensor, pad_left: int) -> Tensor:
    """The oracle: the equation, one output position and one tap at a time."""
    B, T, C = x.shape
    H, K = weight.shape[2:]
    rows = []
    for t in range(T):
        row = torch.zeros_like(x[:, t])
        for j in range(K):
            s = t + j - pad_left
            if 0 <= s < T:
                w = weight[:, t, :, j].repeat_interleave(C // H, dim=1)  # (B, C)
                row = row + w * x[:, s]
        rows.append(row)
    return torch.stack(rows, dim=1)


def pad_time(x: Tensor, kernel_size: int, pad_left: int) -> Tensor:
    """Zeros around (B, T, C): `pad_left` before, the rest of K - 1 after; (B, T + K - 1, C)."""
    return F.pad(x, (0, 0, pad_left, kernel_size - 1 - pad_left))


def window_mix(window: Tensor, weight: Tensor) -> Tensor:
    """Mix windows that are padded already: out[b, t] = sum_j weight[b, t, :, j] window[b, t + j].

    window (B, T + K - 1, C), weight (B, T, H, K); returns (B, T, C).
    """
    H, K = weight.shape[2:]
    windows = window.unfold(1, K, 1).unflatten(2, (H, -1)).transpose(3, 4)  # (B, T, H, K, R)
    return (weight.unsqueeze(3) @ windows).flatten(2)  # (B, T, C)


def dynamic_conv_unfold(x: Tensor, weight: Tensor, pad_left: int) -> Tensor:
    """All windows at once, (B, T, C, K), without a copy; one small product for each head."""
    return window_mix(pad_time(x, weight.shape[-1], pad_left), weight)


def dynamic_conv_band(x: Tensor, weight: Tensor, pad_left: int) -> Tensor:
    """The kernels written into a band matrix (T x T for each head), then one batched product.

    T^2 memory; `dynamic_conv_blocked` writes only the part of the matrix about its diagonal.
    """
    B, T, C = x.shape
    H, K = weight.shape[2:]
    weight = weight.transpose(1, 2)  # (B, H, T, K)
    # Row t of a (T, T + K) matrix holds its kernel at column 0. Read with rows of T + K - 1
    # numbers instead, row t starts t columns earlier: its kernel has moved to column t.
    band = F.pad(weight, (0, T)).flatten(2)[..., : T * (T + K - 1)]
    band = band.unflatten(2, (T, T + K - 1))[..., pad_left : pad_left + T]  # (B, H, T, T)
    heads = x.unflatten(2, (H, C // H)).transpose(1, 2)  # (B, H, T, R)
    return (band @ heads).transpose(1, 2).flatten(2)  # (B, T, C)


def dynamic_conv_shifted(x: Tensor, weight: Tensor, pad_left: int) -> Tensor:
    """K shifted copies of the sequence, each scaled and added; memory linear in T."""
    T = x.shape[1]
    H, K = weight.shape[2:]
    padded = pad_time(x, K, pad_left).unflatten(2, (H, -1))  # (B, T + K - 1, H, R)
    shifts = (weight[..., j, None] * padded[:, j : j + T] for j in range(K))
    return sum(shifts).flatten(2)  # (B, T, C)


IMPLEMENTATIONS = {
    "loop": dynamic_conv_loop,
    "unfold": dynamic_conv_unfold,
    "band": dynamic_conv_band,
    "shifted": dynamic_conv_shifted,
    "taps": dynamic_conv_taps,
    "blocked": dynamic_conv_blocked,
    "native": kernels.mix,
    "cuda": kernels.mix,
}


def dynamic_conv(x: Tensor, weight: Tensor, *, pad_left: int, impl: str = "auto") -> Tensor:
    """Mix each position's window with that position's kernel (Wu et al. 2019, section 4).

    x         (B, T, C)     real
    weight    (B, T, H, K)  already normalised over K; channel c uses head c // (C // H)
    pad_left  zeros before position 0: K // 2 in an encoder, K - 1 for a causal decoder
    returns   (B, T, C)     differentiable in x and weight

    Raises ValueError when H does not divide C, when pad_left lies outside [0, K - 1], when the
    shapes of x and weight differ in B or T, or when `impl` is unknown or cannot run; TypeError for
    mixed dtypes.
    """
    check_conv(x, weight, pad_left, "BTHK")
    implementation = choose("dynamic_conv", IMPLEMENTATIONS, impl, x, weight.shape[3])
    return implementation(x, weight, pad_left)
