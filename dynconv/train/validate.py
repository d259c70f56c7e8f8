"""Loss and score on the validation split."""

import torch

from dynconv.tasks import Validation
from dynconv.train.data import iter_in_order
from dynconv.train.session import Session
from dynconv.train.update import TokenLoss


@torch.inference_mode()
def validate(session: Session) -> Validation:
    """Return loss and score on the validation split, computed in eval mode and float32.

    Each rank takes a share of the batches; the result is the same for any number of ranks.
    """
    model, task, valid, ranks = session.model, session.task, session.valid, session.ranks
    model.eval()
    loss_module = TokenLoss(model, task)
    own = []  # (indices, loss, tokens, outputs) of each batch
    budget = session.recipe.train.batch_tokens
    for number, (indices, batch) in enumerate(iter_in_order(valid.examples, budget)):
        if number % ranks.size == ranks.rank:
            batch = batch.to(ranks.device)
            outputs = task.greedy_outputs(model, batch)
            own.append((indices, loss_module(batch).item(), len(batch.target), outputs))
    model.train()
    parts = [part for parts in ranks.gather(own) for part in parts]
    return ranks.on_rank_zero(lambda: score_parts(session, parts))


def score_parts(session: Session, parts: list[tuple]) -> Validation:
    """Put the outputs of all ranks in order, and score them."""
    parts.sort(key=lambda part: part[0][0])
    loss = sum(part[1] for part in parts) / sum(part[2] for part in parts)
    outputs: list[list[int]] = [[] for _ in range(len(session.valid.examples))]
    for indices, _, _, rows in parts:
        for i, ids in zip(indices, rows, strict=False):
            outputs[i] = ids
    return session.task.score_outputs(loss, outputs, session.valid, session.vocabularies)


@torch.inference_mode()
def preview(session: Session) -> str:
    """Return an example of what the model can do so far, in a line; empty if the task has none."""
    session.model.eval()
    line = session.task.preview(session.model, session.vocabularies, session.valid)
    session.model.train()
    return line
