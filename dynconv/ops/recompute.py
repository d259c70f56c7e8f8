"""DynamicConv in memory linear in T, keeping nothing but its inputs for the backward pass.

Two ways to add up out[b, t, c] = sum_j weight[b, t, head(c), j] * x[b, t + j - pad_left, c]: tap
by tap for all positions (`taps`), or position by position for all taps, as products with blocks of
the band matrix (`blocked`). The backward pass computes again whatever the forward pass computed.
"""

from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor


class Trilinear(torch.autograd.Function):
    """A convolution and its gradients, read off the one sum that contains them all:

        sum over t, j of g[t] * weight[t, j] * x[t + j - pad_left]

    It is linear in g, in weight and in x. Its derivative by g is the convolution, those by weight
    and by x are the gradients, and each of the three maps has the other two for derivatives.
    """

    @staticmethod
    def forward(ctx, maps, sizes, wanted, *tensors):
        """The derivative by tensors[wanted], which is None; the tensors are g, weight, x."""
        ctx.maps, ctx.sizes, ctx.wanted = maps, sizes, wanted
        ctx.save_for_backward(*tensors)
        given = [tensor for tensor in tensors if tensor is not None]
        # Autocast would make the products' dtype differ from the one that backward meets.
        with torch.autocast(given[0].device.type, enabled=False):
            return maps[wanted](*given, *sizes)

    @staticmethod
    def backward(ctx, cotangent):
        tensors = list(ctx.saved_tensors)
        tensors[ctx.wanted] = cotangent
        grads = [None, None, None]
        for i in range(3):
            if ctx.needs_input_grad[3 + i]:
                others = [None if k == i else tensor for k, tensor in enumerate(tensors)]
                grads[i] = Trilinear.apply(ctx.maps, ctx.sizes, i, *others)
        return None, None, None, *grads


def convolve(
    maps: tuple[Callable[..., Tensor], ...], weight: Tensor, x: Tensor, *sizes: int
) -> Tensor:
    """maps[0](weight, x, *sizes), differentiable by means of the two other maps.

    maps    out(weight, x, *sizes), weight_grad(g, x, *sizes), x_grad(g, weight, *sizes)
    """
    return Trilinear.apply(maps, sizes, 0, None, weight, x)


def taps(T: int, K: int, pad_left: int) -> Iterator[tuple[int, slice, slice]]:
    """Each tap j, the positions t whose token s = t + j - pad_left exists, and those tokens."""
    for j in range(K):
        ahead = j - pad_left
        if abs(ahead) < T:
            t = slice(max(0, -ahead), T - max(0, ahead))
            yield j, t, slice(t.start + ahead, t.stop + ahead)


def taps_out(weight: Tensor, x: Tensor, H: int, K: int, pad_left: int) -> Tensor:
    """out[t] += weight[t, j] x[s]"""
    out = x.new_zeros(x.shape)
    rows, tokens = (z.unflatten(2, (H, -1)) for z in (out, x))  # (B, T, H, R)
    for j, t, s in taps(x.shape[1], K, pad_left):
        rows[:, t].addcmul_(weight[:, t, :, j, None], tokens[:, s])
    return out


def taps_weight_grad(g: Tensor, x: Tensor, H: int, K: int, pad_left: int) -> Tensor:
    """grad[t, j] = sum of g[t] x[s] over a head's channels, for few enough t to stay in cache."""
    grad = g.new_zeros(*g.shape[:2], H, K)
    rows, tokens = (z.unflatten(2, (H, -1)) for z in (g, x))  # (B, T, H, R)
    for j, t, s in taps(x.shape[1], K, pad_left):
        parts = (z.split(cached(x), dim=1) for z in (grad[:, t, :, j], rows[:, t], tokens[:, s]))
        for part, a, b in zip(*parts, strict=True):
            torch.sum(a * b, dim=-1, out=part)  # (B, t, H)
    return grad


def taps_x_grad(g: Tensor, weight: Tensor, H: int, K: int, pad_left: int) -> Tensor:
    """grad[s] += weight[t, j] g[t]"""
    grad = g.new_zeros(g.shape)
    rows, tokens = (z.unflatten(2, (H, -1)) for z in (g, grad))  # (B, T, H, R)
    for j, t, s in taps(g.shape[1], K, pad_left):
        tokens[:, s].addcmul_(weight[:, t, :, j, None], rows[:, t])
    return grad


def cached(x: Tensor) -> int:
    """How many positions of (B, T, C) make a megabyte of float32, about a core's own cache."""
    return max(1, 2**18 // max(1, x.shape[0] * x.shape[2]))


def dynamic_conv_taps(x: Tensor, weight: Tensor, pad_left: int) -> Tensor:
    """The K shifted copies, added in place; keeps only x and weight for the backward pass."""
    maps = (taps_out, taps_weight_grad, taps_x_grad)
    return convolve(maps, weight, x, *weight.shape[2:], pad_left)


BLOCK = 32  # positions in a block: more waste products off the diagonals, fewer make small ones


def blocks(T: int, K: int, pad_left: int) -> Iterator[tuple[slice, slice, slice]]:
    """Each block's positions t, the tokens s in their windows, and the columns of those tokens.

    The windows of S positions cover S + K - 1 columns, from token t.start - pad_left on; tokens
    before 0 and from T on do not exist.
    """
    for start in range(0, T, BLOCK):
        t = slice(start, min(start + BLOCK, T))
        first = start - pad_left
        s = slice(max(0, first), min(T, t.stop + K - 1 - pad_left))
        yield t, s, slice(s.start - first, s.stop - first)


def diagonals(band: Tensor, K: int) -> Tensor:
    """A view (..., S, K) of (..., S, S + K - 1): entry [t, j] is band[t, t + j]."""
    return band.flatten(-2).unfold(-1, K, band.shape[-1] + 1)


def split_heads(x: Tensor, H: int) -> Tensor:
    """A view (B, H, T, R) of (B, T, C)."""
    return x.unflatten(2, (H, -1)).transpose(1, 2)


def bands(weight: Tensor, pad_left: int) -> Iterator[tuple[slice, slice, Tensor]]:
    """Each block's positions t, its tokens s, and its part (B, H, t, s) of the band matrix."""
    B, T, H, K = weight.shape
    S = min(BLOCK, T)
    band = weight.new_zeros(B, H, S, S + K - 1)  # off the diagonals it stays zero
    for t, s, columns in blocks(T, K, pad_left):
        rows = weight[:, t].transpose(1, 2)  # (B, H, t, K); the last block may have fewer than S
        diagonals(band, K)[:, :, : rows.shape[2]] = rows
        yield t, s, band[:, :, : rows.shape[2], columns]


def blocked_out(weight: Tensor, x: Tensor, H: int, K: int, pad_left: int) -> Tensor:
    """out = band x"""
    out = x.new_empty(x.shape)
    rows, tokens = split_heads(out, H), split_heads(x, H)
    for t, s, band in bands(weight, pad_left):
        rows[:, :, t] = band @ tokens[:, :, s]
    return out


def blocked_weight_grad(g: Tensor, x: Tensor, H: int, K: int, pad_left: int) -> Tensor:
    """grad = the diagonals of g x^T"""
    grad = g.new_empty(*g.shape[:2], H, K)
    rows, tokens = split_heads(g, H), split_heads(x, H)
    for t, s, columns in blocks(g.shape[1], K, pad_left):
        # matmul would copy a transposed slice number by number: make it dense first.
        band = rows[:, :, t] @ tokens[:, :, s].contiguous().mT  # (B, H, t, s)
        missing = t.stop - t.start + K - 1 - columns.stop
        band = F.pad(band, (columns.start, missing))  # (B, H, t, t + K - 1)
        grad[:, t] = diagonals(band, K).transpose(1, 2)
    return grad


def blocked_x_grad(g: Tensor, weight: Tensor, H: int, K: int, pad_left: int) -> Tensor:
    """grad = band^T g, added up where the windows of two blocks overlap"""
    grad = g.new_zeros(g.shape)
    rows, tokens = split_heads(g, H), split_heads(grad, H)
    for t, s, band in bands(weight, pad_left):
        tokens[:, :, s] += band.mT @ rows[:, :, t]
    return grad


def dynamic_conv_blocked(x: Tensor, weight: Tensor, pad_left: int) -> Tensor:
    """The band matrix in blocks of 32 positions, each times the tokens in its windows.

    Keeps only x and weight: the backward pass writes the blocks again.
    """
    maps = (blocked_out, blocked_weight_grad, blocked_x_grad)
    return convolve(maps, weight, x, *weight.shape[2:], pad_left)
