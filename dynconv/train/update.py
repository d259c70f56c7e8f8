"""The gradient of one update."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

from dynconv.models import Seq2Seq
from dynconv.text import Batch
from dynconv.train.loss import label_smoothed_loss


def backward(
    model: Seq2Seq, batches: list[Batch], *, smoothing: float, precision: str
) -> tuple[float, int]:
    """Add to the gradients those of the mean loss per token over all batches of one update.

    The loss is a sum over tokens, divided once by the number of tokens of the whole update, so that
    many small batches give the gradient of one large batch. Returns that sum and number.
    """
    device = next(model.parameters()).device
    tokens = sum(int((~batch.target_pad).sum()) for batch in batches)
    total = 0.0
    for batch in batches:
        with autocast(precision, device):
            loss = batch_loss(model, batch.to(device), smoothing)
        (loss / tokens).backward()
        total += loss.item()
    return total, tokens


def batch_loss(model: Seq2Seq, batch: Batch, smoothing: float) -> Tensor:
    """Sum of the loss over the real tokens; padding is not even projected to the vocabulary."""
    hidden = model.decode(batch.prefix, model.encode(batch.source, batch.source_pad))
    real = ~batch.target_pad
    return label_smoothed_loss(model.output(hidden[real]), batch.target[real], smoothing)


def autocast(precision: str, device: torch.device) -> AbstractContextManager:
    """The context of a forward pass: bfloat16 autocast, or nothing for float32."""
    return torch.autocast(device.type, torch.bfloat16) if precision == "bfloat16" else nullcontext()
