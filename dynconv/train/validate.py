"""Loss and score on the validation split."""

from typing import NamedTuple

import torch
from torch import nn

from dynconv.decode import greedy
from dynconv.score import Perplexity, measure
from dynconv.text import Vocabularies
from dynconv.train.data import HeldOut, in_order
from dynconv.train.ranks import Ranks
from dynconv.train.update import TokenLoss


class Validation(NamedTuple):
    """What a validation finds."""

    loss: float
    """nats a token, without smoothing"""
    score: float
    """the higher the better: the recipe's metric, 0 to 100, of greedy outputs; of a language model
    minus its loss"""
    metric: str

    def __str__(self) -> str:
        if self.metric == "perplexity":
            per_token = Perplexity(self.loss, 1, 1).per_token
            return f"validation loss {self.loss:.3f}, perplexity {per_token:.2f} a token"
        return f"validation loss {self.loss:.3f}, {self.metric} {self.score:.2f}"


@torch.inference_mode()
def validate(
    model: nn.Module,
    vocabularies: Vocabularies,
    valid: HeldOut,
    metric: str,
    budget: int,
    ranks: Ranks,
) -> Validation:
    """Run over the split once, in eval mode and float32; the ranks take turns at the batches."""
    model.eval()
    loss_of = TokenLoss(model)
    own = []  # (indices, loss, tokens, outputs) of each batch
    for number, (chosen, batch) in enumerate(in_order(valid.text, budget)):
        if number % ranks.size == ranks.rank:
            batch = batch.to(ranks.device)
            outputs = greedy(model, batch.source, batch.source_pad) if valid.references else []
            own.append((chosen, loss_of(batch).item(), len(batch.target), outputs))
    model.train()
    parts = [part for parts in ranks.every(own) for part in parts]
    return ranks.once(lambda: score(vocabularies, valid, metric, parts))


def score(vocabularies: Vocabularies, valid: HeldOut, metric: str, parts: list) -> Validation:
    """The scores of all parts together, whoever computed them."""
    parts.sort(key=lambda part: part[0][0])  # the sum is the same whatever the number of ranks
    loss = sum(part[1] for part in parts) / sum(part[2] for part in parts)
    if metric == "perplexity":
        return Validation(loss, -loss, metric)
    hypotheses = [""] * len(valid.text)
    for chosen, _, _, outputs in parts:
        for i, output in zip(chosen, outputs, strict=True):
            hypotheses[i] = vocabularies.target.decode(output)
    found = measure(metric, hypotheses, valid.references, valid.language)[0]
    return Validation(loss, found.value, found.metric)
