"""The gradient of one update."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn

from dynconv.models import LanguageModel
from dynconv.text import Batch
from dynconv.train.data import Work
from dynconv.train.loss import label_smoothed_loss
from dynconv.train.ranks import Ranks
from dynconv.train.watch import Watch

DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16}


class TokenLoss(nn.Module):
    """The sum of the loss over a batch's tokens; padding is not even projected to the vocabulary.

    Softmax, normalisation and loss are computed in float32 under autocast, too; on a CPU the first
    two are then rounded.
    """

    def __init__(self, model: nn.Module, smoothing: float = 0.0, precision: str = "float32"):
        super().__init__()
        self.model, self.smoothing, self.precision = model, smoothing, precision

    def forward(self, batch: Batch) -> Tensor:
        model = self.model
        with autocast(self.precision, batch.prefix.device):
            if isinstance(model, LanguageModel):
                hidden = model.decode(batch.prefix).flatten(0, 1)  # (B * T, C)
                return model.nats(hidden[batch.real], batch.target).sum()
            memory = model.encode(batch.source, batch.source_pad)
            hidden = model.decode(batch.prefix, memory).flatten(0, 1)
            logits = model.output(hidden[batch.real])  # (N, V)
        return label_smoothed_loss(logits, batch.target, self.smoothing)


def autocast(precision: str, device: torch.device) -> AbstractContextManager:
    """The context of a forward pass: autocast to 16 bits, or nothing for float32."""
    dtype = DTYPES.get(precision)
    return torch.autocast(device.type, dtype) if dtype else nullcontext()


def backward(
    loss_of: nn.Module, work: Work, scaler: torch.amp.GradScaler, ranks: Ranks, watch: Watch
) -> list[Tensor]:
    """Add to the gradients those of the mean loss per token over one update of all ranks.

    The loss is a sum over tokens, divided once by the number of tokens of the whole update, so that
    many small batches on many ranks give the gradient of one large batch. `loss_of` is a TokenLoss
    that `ranks` has wrapped. Returns the losses of this rank's batches.
    """
    losses = []
    for i, (batch, seed) in enumerate(zip(work.batches, work.seeds, strict=True), 1):
        torch.manual_seed(seed)
        # gradients are exchanged once, in the backward pass of the last batch
        exchange = ranks.size == 1 or i == len(work.batches)
        with nullcontext() if exchange else loss_of.no_sync():
            loss = loss_of(batch.to(ranks.device))
            watch.lap("forward")
            # DistributedDataParallel takes the mean over ranks, hence times their number
            scaler.scale(loss * (ranks.size / work.tokens)).backward()
            watch.lap("backward")
        losses.append(loss.detach())
    return losses
