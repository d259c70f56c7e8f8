"""DynamicConv (Wu et al. 2019, section 4), with a separate kernel at each position.

    out[b, t, c] = sum_j weight[b, t, head(c), j] * x[b, t + j - pad_left, c],  x = 0 outside [0, T)

This is equation (11.3) of the book. Neighbouring channels share a kernel: head(c) = c // (C // H).
"""

from collections.abc import Iterator
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from dynconv.kernels import cuda_ops, torch_ops
from dynconv.ops.blocked import BLOCK, blocks, diagonals, positions_in_cache
from dynconv.ops.checks import check_conv
from dynconv.ops.operator import Operator, Rule
from dynconv.ops.shapes import pad_time, split_heads
from dynconv.ops.trilinear import trilinear_conv


def dynamic_conv_loop(x: Tensor, weight: Tensor, pad_left: int) -> Tensor:
    """Evaluate the equation one output position and one tap at a time: the oracle."""
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


def conv_windows(padded: Tensor, weight: Tensor) -> Tensor:
    """Compute out[b, t] = sum_j weight[b, t, :, j] padded[b, t + j] of a padded sequence.

    padded (B, T + K - 1, C), weight (B, T, H, K); returns (B, T, C).
    """
    H, K = weight.shape[2:]
    windows = padded.unfold(1, K, 1).unflatten(2, (H, -1)).transpose(3, 4)  # (B, T, H, K, R)
    return (weight.unsqueeze(3) @ windows).flatten(2)  # (B, T, C)


def dynamic_conv_unfold(x: Tensor, weight: Tensor, pad_left: int) -> Tensor:
    """View all windows as (B, T, C, K), and multiply a small matrix per position and head."""
    return conv_windows(pad_time(x, weight.shape[-1], pad_left), weight)


def dynamic_conv_band(x: Tensor, weight: Tensor, pad_left: int) -> Tensor:
    """Write the kernels of each head into a T x T band matrix and multiply x by it.

    It needs T^2 memory; `dynamic_conv_blocked` writes only the blocks near the diagonal.
    """
    B, T, C = x.shape
    H, K = weight.shape[2:]
    weight = weight.transpose(1, 2)  # (B, H, T, K)
    # Each row of a (T, T + K) matrix starts with its kernel. Read the same memory with rows of
    # T + K - 1 elements: row t now starts t elements earlier, so its kernel is at column t.
    band = F.pad(weight, (0, T)).flatten(2)[..., : T * (T + K - 1)]
    band = band.unflatten(2, (T, T + K - 1))[..., pad_left : pad_left + T]  # (B, H, T, T)
    return (band @ split_heads(x, H)).transpose(1, 2).flatten(2)  # (B, T, C)


def dynamic_conv_shifted(x: Tensor, weight: Tensor, pad_left: int) -> Tensor:
    """Scale and add K shifted copies of the sequence, in memory linear in T."""
    T = x.shape[1]
    H, K = weight.shape[2:]
    padded = pad_time(x, K, pad_left).unflatten(2, (H, -1))  # (B, T + K - 1, H, R)
    shifts = (weight[..., j, None] * padded[:, j : j + T] for j in range(K))
    return sum(shifts).flatten(2)  # (B, T, C)


def taps(T: int, K: int, pad_left: int) -> Iterator[tuple[int, slice, slice]]:
    """Yield each tap j, the positions t that have a token s = t + j - pad_left, and these s."""
    for j in range(K):
        ahead = j - pad_left
        if abs(ahead) < T:
            t = slice(max(0, -ahead), T - max(0, ahead))
            yield j, t, slice(t.start + ahead, t.stop + ahead)


def taps_out(weight: Tensor, x: Tensor, pad_left: int) -> Tensor:
    """Compute out[t] += weight[t, j] x[s] for each tap j, with s = t + j - pad_left."""
    H, K = weight.shape[2:]
    out = x.new_zeros(x.shape)
    rows, tokens = (z.unflatten(2, (H, -1)) for z in (out, x))  # (B, T, H, R)
    for j, t, s in taps(x.shape[1], K, pad_left):
        rows[:, t].addcmul_(weight[:, t, :, j, None], tokens[:, s])
    return out


def taps_grad_weight(g: Tensor, x: Tensor, pad_left: int, H: int, K: int) -> Tensor:
    """Compute grad[t, j] = g[t] . x[s] per head, for as many t at once as fit into the cache."""
    grad = g.new_zeros(*g.shape[:2], H, K)
    rows, tokens = (z.unflatten(2, (H, -1)) for z in (g, x))  # (B, T, H, R)
    for j, t, s in taps(x.shape[1], K, pad_left):
        size = positions_in_cache(x)
        parts = grad[:, t, :, j].split(size, dim=1)
        pairs = zip(rows[:, t].split(size, dim=1), tokens[:, s].split(size, dim=1), strict=True)
        for part, (a, b) in zip(parts, pairs, strict=True):
            torch.sum(a * b, dim=-1, out=part)  # (B, t, H)
    return grad


def taps_grad_input(g: Tensor, weight: Tensor, pad_left: int) -> Tensor:
    """Compute grad[s] += weight[t, j] g[t] for each tap j."""
    H, K = weight.shape[2:]
    grad = g.new_zeros(g.shape)
    rows, tokens = (z.unflatten(2, (H, -1)) for z in (g, grad))  # (B, T, H, R)
    for j, t, s in taps(g.shape[1], K, pad_left):
        tokens[:, s].addcmul_(weight[:, t, :, j, None], rows[:, t])
    return grad


def dynamic_conv_taps(x: Tensor, weight: Tensor, pad_left: int) -> Tensor:
    """Add K shifted copies in place; saves only x and weight for the backward pass."""
    H, K = weight.shape[2:]
    grad_weight = partial(taps_grad_weight, H=H, K=K)
    return trilinear_conv(taps_out, grad_weight, taps_grad_input, weight, x, pad_left)


def band_blocks(weight: Tensor, pad_left: int) -> Iterator[tuple[slice, slice, Tensor]]:
    """Yield the positions t of each block, its tokens s, and its part (B, H, t, s) of the band."""
    B, T, H, K = weight.shape
    S = min(BLOCK, T)
    band = weight.new_zeros(B, H, S, S + K - 1)  # zero outside the K diagonals
    for t, s, columns in blocks(T, K, pad_left):
        rows = weight[:, t].transpose(1, 2)  # (B, H, t, K); the last block may have fewer than S
        diagonals(band, K)[:, :, : rows.shape[2]] = rows
        yield t, s, band[:, :, : rows.shape[2], columns]


def blocked_out(weight: Tensor, x: Tensor, pad_left: int) -> Tensor:
    """Return the product of the band and x."""
    H = weight.shape[2]
    out = x.new_empty(x.shape)
    rows, tokens = split_heads(out, H), split_heads(x, H)
    for t, s, band in band_blocks(weight, pad_left):
        rows[:, :, t] = band @ tokens[:, :, s]
    return out


def blocked_grad_weight(g: Tensor, x: Tensor, pad_left: int, H: int, K: int) -> Tensor:
    """Return the diagonals of g x^T."""
    grad = g.new_empty(*g.shape[:2], H, K)
    rows, tokens = split_heads(g, H), split_heads(x, H)
    for t, s, columns in blocks(g.shape[1], K, pad_left):
        # `matmul` would copy a transposed slice element by element, which is slow.
        band = rows[:, :, t] @ tokens[:, :, s].contiguous().mT  # (B, H, t, s)
        missing = t.stop - t.start + K - 1 - columns.stop
        band = F.pad(band, (columns.start, missing))  # (B, H, t, t + K - 1)
        grad[:, t] = diagonals(band, K).transpose(1, 2)
    return grad


def blocked_grad_input(g: Tensor, weight: Tensor, pad_left: int) -> Tensor:
    """Return band^T g, summed where the windows of two blocks overlap."""
    H = weight.shape[2]
    grad = g.new_zeros(g.shape)
    rows, tokens = split_heads(g, H), split_heads(grad, H)
    for t, s, band in band_blocks(weight, pad_left):
        tokens[:, :, s] += band.mT @ rows[:, :, t]
    return grad


def dynamic_conv_blocked(x: Tensor, weight: Tensor, pad_left: int) -> Tensor:
    """Multiply blocks of 32 rows of the band matrix by the tokens in their windows.

    Saves only x and weight: the backward pass builds the blocks again.
    """
    H, K = weight.shape[2:]
    grad_weight = partial(blocked_grad_weight, H=H, K=K)
    return trilinear_conv(blocked_out, grad_weight, blocked_grad_input, weight, x, pad_left)


OPERATOR = Operator(
    "dynamic_conv",
    {
        "loop": dynamic_conv_loop,
        "unfold": dynamic_conv_unfold,
        "band": dynamic_conv_band,
        "shifted": dynamic_conv_shifted,
        "taps": dynamic_conv_taps,
        "blocked": dynamic_conv_blocked,
        "cpu": torch_ops.conv,
        "cuda": cuda_ops.conv,
    },
    (Rule("taps", max_K=3, min_T=11), Rule("band", max_T=64), Rule("blocked")),
    transformable_impl="shifted",
)


def dynamic_conv(x: Tensor, weight: Tensor, *, pad_left: int, impl: str = "auto") -> Tensor:
    """Convolve with a separate kernel at each position (Wu et al. 2019, section 4).

    x         (B, T, C)     real
    weight    (B, T, H, K)  already normalised over K; channel c uses head c // (C // H)
    pad_left  zeros before position 0: K // 2 in an encoder, K - 1 for a causal decoder
    returns   (B, T, C)     differentiable in x and weight

    Raises the errors of `light_conv`, and ValueError when x and weight differ in B or T.
    """
    check_conv(x, weight, pad_left, "BTHK")
    implementation = OPERATOR.choose(impl, x, x.shape[1], weight.shape[3])
    return implementation(x, weight, pad_left)
