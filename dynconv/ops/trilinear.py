"""Gradients of convolutions whose implementations save only their inputs for the backward pass."""

from collections.abc import Callable

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


def differentiable(
    maps: tuple[Callable[..., Tensor], ...], weight: Tensor, x: Tensor, *sizes: int
) -> Tensor:
    """Return maps[0](weight, x, *sizes), differentiated by the other two maps.

    maps    out(weight, x, *sizes), weight_grad(g, x, *sizes), x_grad(g, weight, *sizes)
    """
    return Trilinear.apply(maps, sizes, 0, None, weight, x)
