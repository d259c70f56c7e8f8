"""Loss and BLEU on the validation split."""

from typing import NamedTuple

import torch

from dynconv.decode import greedy
from dynconv.models import Seq2Seq
from dynconv.score import bleu
from dynconv.text import BPE
from dynconv.text.batching import Pair
from dynconv.train.data import in_order
from dynconv.train.update import batch_loss


class Validation(NamedTuple):
    """`loss` in nats a token, without smoothing; `bleu` of greedy translations (sacreBLEU)."""

    loss: float
    bleu: float


@torch.inference_mode()
def validate(model: Seq2Seq, bpe: BPE, pairs: list[Pair], budget: int) -> Validation:
    """Run over the pairs once, in eval mode and float32."""
    model.eval()
    device = next(model.parameters()).device
    total, tokens, output = 0.0, 0, {}
    for chosen, batch in in_order(pairs, budget):
        batch = batch.to(device)
        total += batch_loss(model, batch, smoothing=0.0).item()
        tokens += int((~batch.target_pad).sum())
        translations = greedy(model, batch.source, batch.source_pad)
        output.update(zip(chosen, map(bpe.decode, translations), strict=True))
    model.train()
    hypotheses = [output[i] for i in range(len(pairs))]
    references = [bpe.decode(target) for _, target in pairs]
    return Validation(total / tokens, bleu(hypotheses, references).value)
