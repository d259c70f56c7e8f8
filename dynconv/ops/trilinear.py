"""Gradients of convolutions whose implementations save only their inputs for the backward pass."""

from collections.abc import Callable

import torch
from torch import Tensor

from dynconv.dtypes import without_autocast


class Trilinear(torch.autograd.Function):
    """Computes a convolution and its gradients as derivatives of one sum:

        sum over t, j of g[t] * weight[t, j] * x[t + j - pad_left]

    The sum is linear in g, in weight and in x. Its derivative with respect to g is the convolution,
    and its derivatives with respect to weight and x are the gradients. Each of these three is
    therefore differentiated by the other two, to any order. `dynconv.kernels.torch_library` does
    the same with compiled kernels.
    """

    @staticmethod
    def forward(ctx, derivatives, pad_left, wanted, *tensors):
        """Return the sum's derivative with respect to tensors[wanted].

        `tensors` are g, weight and x, with None in place of the wanted one.
        """
        ctx.derivatives, ctx.pad_left, ctx.wanted = derivatives, pad_left, wanted
        ctx.save_for_backward(*tensors)
        a, b = (tensor for tensor in tensors if tensor is not None)
        # Under autocast, forward and backward would compute in different dtypes.
        with without_autocast(a):
            return derivatives[wanted](a, b, pad_left)

    @staticmethod
    def backward(ctx, cotangent):
        tensors = list(ctx.saved_tensors)
        tensors[ctx.wanted] = cotangent
        grads = [None, None, None]
        for i in range(3):
            if ctx.needs_input_grad[3 + i]:
                others = [None if k == i else tensor for k, tensor in enumerate(tensors)]
                grads[i] = Trilinear.apply(ctx.derivatives, ctx.pad_left, i, *others)
        return None, None, None, *grads


Bilinear = Callable[[Tensor, Tensor, int], Tensor]


def trilinear_conv(
    out: Bilinear,
    grad_weight: Bilinear,
    grad_input: Bilinear,
    weight: Tensor,
    x: Tensor,
    pad_left: int,
) -> Tensor:
    """Return out(weight, x, pad_left), a convolution that the other two functions differentiate.

    grad_weight(g, x, pad_left) and grad_input(g, weight, pad_left) return its inputs' gradients.
    """
    return Trilinear.apply((out, grad_weight, grad_input), pad_left, 0, None, weight, x)
