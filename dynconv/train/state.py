"""What updates change, what a checkpoint holds of it, and whether a checkpoint fits a run."""

import os
import sys
from pathlib import Path
from typing import NamedTuple

import torch

from dynconv.config import TrainConfig
from dynconv.errors import UserError
from dynconv.models import Seq2Seq
from dynconv.train import checkpoint as checkpoints
from dynconv.train.checkpoint import Checkpoint
from dynconv.train.data import Place
from dynconv.train.ranks import Ranks
from dynconv.train.run import vocabulary_hash
from dynconv.train.validate import Validation


class State(NamedTuple):
    """Weights, moments and the scale of a float16 loss."""

    model: Seq2Seq
    adam: torch.optim.Optimizer
    scaler: torch.amp.GradScaler


def begin(model: Seq2Seq, config: TrainConfig, device: torch.device) -> State:
    """The state before the first update."""
    adam = torch.optim.AdamW(
        model.parameters(),
        betas=config.betas,
        eps=config.eps,
        weight_decay=config.weight_decay,
        fused=True,
    )
    scaler = torch.amp.GradScaler(device.type, enabled=config.precision == "float16")
    return State(model, adam, scaler)


def resume(run: Path, state: State, config: TrainConfig, ranks: Ranks) -> tuple[int, Place]:
    """Restore the newest intact checkpoint; updates done and place in the data."""

    def say(text: str) -> None:
        if ranks.first:
            print(f"dynconv: {text}", file=sys.stderr)

    found = checkpoints.newest(run, say)
    name = found and found[0].path.name
    ranks.agree(name, lambda ours, theirs: f"the newest checkpoint is {ours}, not {theirs}")
    if found is None:
        return 0, Place()
    last, weights, rest = found
    checkpoints.check_vocabulary(last, vocabulary_hash(run))
    check_machine(last, config, ranks)
    checkpoints.fill(state.model, weights, last.path)
    state.adam.load_state_dict(rest["adam"])
    state.scaler.load_state_dict(rest["scaler"])
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


def save(
    run: Path,
    state: State,
    done: int,
    place: Place,
    scores: Validation | None,
    config: TrainConfig,
    ranks: Ranks,
    *,
    average: bool = False,
) -> None:
    """Save a checkpoint, or the weights alone as the average: rank 0 writes, the others wait."""
    name = "average" if average else f"{done:06d}"
    rest = {"adam": state.adam.state_dict(), "scaler": state.scaler.state_dict()}
    meta = {
        "update": done,
        "place": place,
        "batches": config.accumulate * ranks.size,
        "device": ranks.device.type,
        "loss": scores and scores.loss,
        "bleu": scores and scores.bleu,
        "vocabulary": vocabulary_hash(run),
    }

    def write() -> None:
        path = run / "checkpoints" / name
        checkpoints.save(path, state.model, None if average else rest, meta)
        checkpoints.prune(run, config.keep)

    ranks.once(write)
