"""The loss: cross-entropy with label smoothing, summed over tokens."""

import torch.nn.functional as F
from torch import Tensor


def label_smoothed_loss(logits: Tensor, target: Tensor, smoothing: float) -> Tensor:
    """Sum over N tokens of cross-entropy with a smoothed target (Vaswani et al. 2017, sec. 5.4).

    Equation (2.2) of the book.

    logits (N, V), target (N,) int64. The correct type has probability 1 - smoothing and each of
    the V - 1 others smoothing / (V - 1), as in later versions of fairseq; PyTorch and earlier
    versions spread the smoothing over all V types, hence the factor.
    """
    V = logits.shape[-1]
    smoothing = smoothing * V / (V - 1)
    return F.cross_entropy(logits.float(), target, label_smoothing=smoothing, reduction="sum")
