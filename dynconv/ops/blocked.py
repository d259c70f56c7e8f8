"""Gradients of implementations that save only their inputs for the backward pass.

`convolve` makes a convolution differentiable, given functions for its two gradients. `blocks` and
`diagonals` split the band matrix of a convolution into blocks of positions, so that memory stays
linear in T.
"""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor


class Trilinear(torch.autograd.Function):
    """Computes a convolution and its gradients as derivatives of one sum:

        sum over t, j of g[t] * weight[t, j] * x[t + j - pad_left]

    The sum is linear in g, in weight and in x. Its derivative with respect to g is the convolution,
    and its derivatives with respect to weight and x are the gradients. Each of these three maps is
    therefore differentiated by the other two, to any order. `dynconv.kernels.schema` says
    the same for the compiled kernels.
    """

    @staticmethod
    def forward(ctx, maps, sizes, index, *tensors):
        """Return the derivative by tensors[index], which is None; `tensors` are g, weight and x."""
        ctx.maps, ctx.sizes, ctx.index = maps, sizes, index
        ctx.save_for_backward(*tensors)
        operands = [tensor for tensor in tensors if tensor is not None]
        # Under autocast, forward and backward would compute in different dtypes.
        with torch.autocast(operands[0].device.type, enabled=False):
            return maps[index](*operands, *sizes)

    @staticmethod
    def backward(ctx, cotangent):
        tensors = list(ctx.saved_tensors)
        tensors[ctx.index] = cotangent
        grads = [None, None, None]
        for i in range(3):
            if ctx.needs_input_grad[3 + i]:
                others = [None if k == i else tensor for k, tensor in enumerate(tensors)]
                grads[i] = Trilinear.apply(ctx.maps, ctx.sizes, i, *others)
        return None, None, None, *grads


def convolve(
    maps: tuple[Callable[..., Tensor], ...], weight: Tensor, x: Tensor, *sizes: int
) -> Tensor:
    """Return maps[0](weight, x, *sizes), differentiated by the other two maps.

    maps    out(weight, x, *sizes), weight_grad(g, x, *sizes), x_grad(g, weight, *sizes)
    """
    return Trilinear.apply(maps, sizes, 0, None, weight, x)


def positions_in_cache(x: Tensor) -> int:
    """Return how many positions of (B, T, C) fit into 1 MB of float32, about a core's cache."""
    return max(1, 2**18 // max(1, x.shape[0] * x.shape[2]))


BLOCK = 32  # positions: larger blocks multiply more zeros, smaller ones are slow to multiply


def blocks(T: int, K: int, pad_left: int) -> Iterator[tuple[slice, slice, slice]]:
    """Yield the positions t of each block, the tokens s in their windows, and the tokens' columns.

    The windows of S positions span S + K - 1 columns; column 0 is token t.start - pad_left. Only
    tokens from 0 to T - 1 exist.
    """
    for start in range(0, T, BLOCK):
        t = slice(start, min(start + BLOCK, T))
        first = start - pad_left
        s = slice(max(0, first), min(T, t.stop + K - 1 - pad_left))
        yield t, s, slice(s.start - first, s.stop - first)


def diagonals(band: Tensor, K: int) -> Tensor:
    """Return a view (..., S, K) of (..., S, S + K - 1) whose entry [t, j] is band[t, t + j]."""
    return band.flatten(-2).unfold(-1, K, band.shape[-1] + 1)
