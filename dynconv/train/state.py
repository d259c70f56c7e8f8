"""What updates change, what a checkpoint holds of it, and whether a checkpoint fits a run."""

import os
import sys
from pathlib import Path
from typing import NamedTuple

import torch
from torch import nn

from dynconv.config import TrainConfig
from dynconv.errors import UserError
from dynconv.text import Prepared
from dynconv.train import checkpoint as checkpoints
from dynconv.train.checkpoint import Checkpoint
from dynconv.train.data import Place
from dynconv.train.ranks import Ranks
from dynconv.train.run import vocabulary_hash
from dynconv.train.validate import Validation


class State(NamedTuple):
    """Weights, moments and the scale of a float16 loss."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    scaler: torch.amp.GradScaler


def begin(model: nn.Module, config: TrainConfig, device: torch.device) -> State:
    """The state before the first update."""
    if config.optimizer == "adam":
        own = {"betas": config.betas, "eps": config.eps}
        optimizer = torch.optim.AdamW
    else:
        own = {"momentum": config.momentum, "nesterov": True}
        optimizer = torch.optim.SGD
    made = optimizer(
        model.parameters(), lr=config.lr, weight_decay=config.weight_decay, fused=True, **own
    )
    scaler = torch.amp.GradScaler(device.type, enabled=config.precision == "float16")
    return State(model, made, scaler)


class Done(NamedTuple):
    """How far training has come."""

    updates: int = 0
    place: Place = Place()
    """in the data"""
    validated: bool = False
    """whether these very updates are followed by a validation"""


def resume(run: Path, state: State, config: TrainConfig, corpus: Prepared, ranks: Ranks) -> Done:
    """Restore the newest intact checkpoint, which rank 0 finds."""

    def newest() -> str | None:
        nonlocal found
        found = checkpoints.newest(run, lambda text: print(f"dynconv: {text}", file=sys.stderr))
        return found and found[0].path.name

    found = None
    name = ranks.once(newest)
    if name is None:
        return Done()
    if found is None:  # not rank 0
        last = checkpoints.opened(run / "checkpoints" / name)
        found = last, checkpoints.load_weights(last), checkpoints.load_state(last)
    last, weights, rest = found
    checkpoints.check_vocabulary(last, vocabulary_hash(run))
    if last.meta["text"] != text_hash(corpus):
        raise UserError(f"{corpus.directory}: not the text with which {last.path} was trained")
    check_machine(last, config, ranks)
    checkpoints.fill(state.model, weights, last.path)
    state.optimizer.load_state_dict(rest["optimizer"])
    state.scaler.load_state_dict(rest["scaler"])
    return Done(last.meta["update"], Place(*last.meta["place"]), last.meta["score"] is not None)


def text_hash(corpus: Prepared) -> str:
    """A place in the data means nothing in another text."""
    return corpus.files["train.tokens"]["sha256"]


def check_machine(checkpoint: Checkpoint, config: TrainConfig, ranks: Ranks) -> None:
    """UserError when going on here would change the size of an update, or leave the GPU unused."""
    batches, now = checkpoint.meta["batches"], config.accumulate * ranks.size
    if now != batches:
        remedy = (
            f"give train.accumulate={batches // ranks.size}"
            if batches % ranks.size == 0
            else f"start a number of processes that divides {batches}"
        )
        raise UserError(
            f"{checkpoint.path}: its updates are of {batches} batches, and now of {now} "
            f"(train.accumulate {config.accumulate}, processes {ranks.size}): {remedy}"
        )
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES") == ""
    if checkpoint.meta["device"] == "cuda" and ranks.device.type == "cpu" and not chosen:
        raise UserError(
            f"{checkpoint.path}: trained on a GPU, but none is visible here: see dynconv doctor, "
            "or set CUDA_VISIBLE_DEVICES= to go on with the CPU"
        )


def save(
    run: Path, state: State, done: Done, config: TrainConfig, corpus: Prepared, ranks: Ranks
) -> None:
    """Save a checkpoint that has no scores yet: rank 0 writes, the others wait."""

    def write() -> None:
        rest = {"optimizer": state.optimizer.state_dict(), "scaler": state.scaler.state_dict()}
        meta = {
            "update": done.updates,
            "place": done.place,
            "batches": config.accumulate * ranks.size,
            "device": ranks.device.type,
            "loss": None,
            "score": None,
            "vocabulary": corpus.files["vocabulary.json"]["sha256"],
            "text": text_hash(corpus),
        }
        checkpoints.save(run / "checkpoints" / f"{done.updates:06d}", state.model, rest, meta)
        checkpoints.prune(run, config.keep)

    ranks.once(write)


def rate(run: Path, done: Done, scores: Validation, config: TrainConfig, ranks: Ranks) -> None:
    """Write the scores of its validation into a checkpoint."""

    def write() -> None:
        checkpoints.score(run / "checkpoints" / f"{done.updates:06d}", **scores._asdict())
        checkpoints.prune(run, config.keep)

    ranks.once(write)
