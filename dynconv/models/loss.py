"""Label-smoothed cross-entropy, computed in chunks where all logits would take too much memory.

The logits of N tokens over V types are the largest tensor in training: 28,672 x 32,768 take 3.8 GB
in float32, and their gradient as much again. Beyond `MAX_LOGITS`, we go through the tokens in
chunks and compute each chunk's loss and gradients before the next one's logits.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from dynconv.dtypes import to_autocast_dtype
from dynconv.ops.derivatives import first_derivative_only

MAX_LOGITS = 2**25
"""maximum number of logits in memory at once, 134 MB in float32"""


def label_smoothed_loss(logits: Tensor, target: Tensor, smoothing: float) -> Tensor:
    """Return cross-entropy with smoothed targets, summed over N tokens (Vaswani et al. 2017, 5.4).

    Equation (2.4) of the book, computed in float32 for logits of any dtype.

    logits (N, V), target (N,) int64. The correct type has probability 1 - smoothing and each of
    the V - 1 others smoothing / (V - 1), as in later versions of fairseq; PyTorch and earlier
    versions spread the smoothing over all V types, hence the factor.
    """
    V = logits.shape[-1]
    smoothing = smoothing * V / (V - 1)
    return F.cross_entropy(logits.float(), target, label_smoothing=smoothing, reduction="sum")


def projected_loss(
    hidden: Tensor,
    target: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    smoothing: float = 0.0,
) -> Tensor:
    """Return the label-smoothed loss of hidden (N, C), whose logits are W hidden + b.

    target (N,) int64, weight W (V, C), bias b (V,) or None. There is no second derivative beyond
    `MAX_LOGITS` logits.
    """
    rows = max(1, MAX_LOGITS // len(weight))
    if len(hidden) <= rows:
        return label_smoothed_loss(F.linear(hidden, weight, bias), target, smoothing)
    return ChunkedLoss.apply(hidden, weight, bias, target, smoothing, rows)


class ChunkedLoss(torch.autograd.Function):
    """Computes the label-smoothed loss in chunks of rows, and the gradients together with it.

    The gradient of the loss with respect to the logits is softmax(logits) minus the smoothed
    target. The gradients of hidden, W and b can therefore be computed in the forward pass. The
    backward pass only scales them, so no logits are computed twice.
    """

    # This repeats the formula of `label_smoothed_loss`, with its gradient: autograd would take
    # longer in bfloat16, and keep another chunk of logits.

    @staticmethod
    def forward(ctx, hidden, weight, bias, target, smoothing, rows):
        x = to_autocast_dtype(hidden)
        W = to_autocast_dtype(weight)
        V = len(weight)
        other = smoothing / (V - 1)  # the smoothed target of all types but the correct one
        surplus = 1 - smoothing - other  # what the correct one has beyond that
        dx, dW = torch.zeros_like(hidden), torch.zeros_like(weight)
        db = None if bias is None else torch.zeros_like(bias)
        loss = hidden.new_zeros((), dtype=torch.float32)
        for h, dh, correct in zip(*(z.split(rows) for z in (x, dx, target)), strict=True):
            at = torch.arange(len(h), device=h.device), correct
            log_p = F.linear(h, W, bias).log_softmax(1, dtype=torch.float32)
            smoothed = other * log_p.sum() if other else 0  # 0 times a logit of -inf is NaN
            loss -= surplus * log_p[at].sum() + smoothed
            if any(ctx.needs_input_grad):
                g = log_p.exp_().sub_(other)
                g[at] -= surplus
                g = g.to(W.dtype)
                dh.copy_(g @ W)
                dW += g.t() @ h
                if db is not None:
                    db += g.sum(0)
        ctx.save_for_backward(dx, dW, db)
        return loss

    @staticmethod
    @first_derivative_only("the loss in chunks", "raise MAX_LOGITS of dynconv.models.loss")
    def backward(ctx, factor):
        gradients = (None if z is None else z * factor for z in ctx.saved_tensors)
        return *gradients, None, None, None
