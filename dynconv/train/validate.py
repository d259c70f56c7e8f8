"""Loss and score on the validation split."""

from itertools import chain
from typing import NamedTuple

import numpy as np
import torch

from dynconv.tasks import Validation
from dynconv.text import batch_by_length
from dynconv.train.session import Session
from dynconv.train.update import BatchLoss


class ScoredBatch(NamedTuple):
    """One batch of a validation, with its loss and outputs."""

    indices: np.ndarray
    """indices of the examples in the batch"""
    loss: float
    """the loss, summed over the batch's target tokens"""
    tokens: int
    outputs: list[list[int]]
    """outputs of greedy search, as ids; empty for a language model"""


@torch.inference_mode()
def validate(session: Session) -> Validation:
    """Return loss and score on the validation split, computed in eval mode and float32.

    Each rank takes a share of the batches; the result is the same for any number of ranks.
    """
    model, task, world = session.model, session.task, session.world
    examples = session.validation_split.examples
    model.eval()
    loss_module = BatchLoss(model, task)
    scored = []
    budget = session.recipe.train.batch_tokens
    lengths = examples.lengths(range(len(examples)))
    batches = batch_by_length(lengths, max(budget, int(lengths.max())))
    for indices in batches[world.rank :: world.size]:
        batch = examples.batch(indices).to(world.device)
        outputs = task.greedy_outputs(model, batch)
        scored.append(ScoredBatch(indices, loss_module(batch).item(), len(batch.target), outputs))
    model.train()
    of_all_ranks = list(chain.from_iterable(world.gather(scored)))
    return world.on_rank_zero(lambda: score_batches(session, of_all_ranks))


def score_batches(session: Session, scored: list[ScoredBatch]) -> Validation:
    """Put the outputs of all ranks in order, and score them."""
    scored.sort(key=lambda batch: batch.indices[0])  # sums of floats depend on the order
    loss = sum(batch.loss for batch in scored) / sum(batch.tokens for batch in scored)
    outputs: list[list[int]] = [[] for _ in range(len(session.validation_split.examples))]
    for batch in scored:
        for i, ids in zip(batch.indices, batch.outputs, strict=False):  # a language model has none
            outputs[i] = ids
    return session.task.score_outputs(loss, outputs, session.validation_split, session.vocabularies)


@torch.inference_mode()
def preview_output(session: Session) -> str:
    """Return the task's preview of what the model can do so far; the model stays in train mode."""
    session.model.eval()
    line = session.task.preview(session.model, session.vocabularies, session.validation_split)
    session.model.train()
    return line
