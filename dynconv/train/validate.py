"""Loss and BLEU on the validation split."""

from typing import NamedTuple

import torch

from dynconv.decode import greedy
from dynconv.models import Seq2Seq
from dynconv.score import bleu
from dynconv.text import BPE
from dynconv.text.batching import Pair
from dynconv.train.data import in_order
from dynconv.train.ranks import Ranks
from dynconv.train.update import TokenLoss


class Validation(NamedTuple):
    """`loss` in nats a token, without smoothing; `bleu` of greedy translations (sacreBLEU)."""

    loss: float
    bleu: float

    def __str__(self) -> str:
        return f"validation loss {self.loss:.3f}, BLEU {self.bleu:.2f}"


@torch.inference_mode()
def validate(model: Seq2Seq, bpe: BPE, pairs: list[Pair], budget: int, ranks: Ranks) -> Validation:
    """Run over the pairs once, in eval mode and float32; the ranks take turns at the batches."""
    model.eval()
    loss_of = TokenLoss(model)
    own = []  # (indices, loss, tokens, translations) of each batch
    for number, (chosen, batch) in enumerate(in_order(pairs, budget)):
        if number % ranks.size == ranks.rank:
            batch = batch.to(ranks.device)
            translations = greedy(model, batch.source, batch.source_pad)
            own.append((chosen, loss_of(batch).item(), len(batch.target), translations))
    model.train()
    parts = [part for parts in ranks.every(own) for part in parts]
    return ranks.once(lambda: score(bpe, pairs, parts))


def score(bpe: BPE, pairs: list[Pair], parts: list) -> Validation:
    """The scores of all parts together, whoever computed them."""
    hypotheses = [""] * len(pairs)
    parts.sort(key=lambda part: part[0][0])  # the sum is the same whatever the number of ranks
    for chosen, _, _, translations in parts:
        for i, translation in zip(chosen, translations, strict=True):
            hypotheses[i] = bpe.decode(translation)
    references = [bpe.decode(target) for _, target in pairs]
    loss = sum(part[1] for part in parts) / sum(part[2] for part in parts)
    return Validation(loss, bleu(hypotheses, references).value)
