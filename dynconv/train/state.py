"""What a checkpoint restores, and the checks that it fits the run that goes on from it."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from dynconv.config import TrainConfig
from dynconv.errors import UserError
from dynconv.train import checkpoint as checkpoints
from dynconv.train.checkpoint import Checkpoint
from dynconv.train.data import Place
from dynconv.train.ranks import Ranks
from dynconv.train.run import vocabulary_hash
from dynconv.train.validate import Validation


def resume(
    run: Path,
    model: nn.Module,
    adam: torch.optim.Optimizer,
    scaler: torch.amp.GradScaler,
    config: TrainConfig,
    ranks: Ranks,
) -> tuple[int, Place]:
    """Restore the newest intact checkpoint; updates done and place in the data."""

    def say(text: str) -> None:
        if ranks.first:
            print(f"dynconv: {text}", file=sys.stderr)

    found = checkpoints.newest(run, say)
    name = found and found[0].path.name
    ranks.agree(name, lambda ours, theirs: f"the newest checkpoint is {ours}, not {theirs}")
    if found is None:
        return 0, Place()
    last, weights, state = found
    checkpoints.check_vocabulary(last, vocabulary_hash(run))
    check_machine(last, config, ranks)
    checkpoints.fill(model, weights, last.path)
    adam.load_state_dict(state["adam"])
    scaler.load_state_dict(state["scaler"])
    return last.meta["update"], Place(*last.meta["place"])


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


def saver(
    run: Path,
    model: nn.Module,
    adam: torch.optim.Optimizer,
    scaler: torch.amp.GradScaler,
    config: TrainConfig,
    ranks: Ranks,
) -> Callable[[int, Place, Validation | None], None]:
    """A function that saves a checkpoint after an update; rank 0 writes, the others wait."""
    vocabulary = vocabulary_hash(run)

    def save(done: int, place: Place, scores: Validation | None, average: bool = False) -> None:
        name = "average" if average else f"{done:06d}"
        meta = {
            "update": done,
            "place": place,
            "batches": config.accumulate * ranks.size,
            "device": ranks.device.type,
            "loss": scores and scores.loss,
            "bleu": scores and scores.bleu,
            "vocabulary": vocabulary,
        }
        state = None if average else {"adam": adam.state_dict(), "scaler": scaler.state_dict()}

        def write() -> None:
            checkpoints.save(run / "checkpoints" / name, model, state, meta)
            checkpoints.prune(run, config.keep)

        ranks.once(write)

    return save
