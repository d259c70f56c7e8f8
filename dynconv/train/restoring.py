"""Restores a session from its newest checkpoint, which must fit recipe, text and machine."""

import os

from dynconv.config import TrainConfig
from dynconv.config.optimizers import OPTIMIZERS
from dynconv.errors import UserError
from dynconv.files import check_inside
from dynconv.tasks import Validation
from dynconv.text.prepared import TOKENS
from dynconv.train.checkpoint import RESTORE, STATE, Checkpoint
from dynconv.train.data import DataPosition
from dynconv.train.distributed import World
from dynconv.train.run_corpus import check_vocabulary
from dynconv.train.session import Progress, Session
from dynconv.train.weights import load_weights, shape_and_dtype


def restore(session: Session) -> None:
    """Continue from the newest intact checkpoint, if there is one.

    Rank 0 finds it, renames damaged ones after it, and deletes those that the recipe does not keep.
    """
    config, checkpoints = session.recipe.train, session.checkpoints

    def find() -> tuple[Checkpoint, list[Validation]] | None:
        check_inside(session.run, checkpoints.directory)
        checkpoint = checkpoints.recover_newest()
        if checkpoint is None:
            return None
        checkpoints.prune(config.keep_checkpoints)
        return checkpoint, checkpoint.validations(config)

    newest = session.world.on_rank_zero(find)
    if newest is None:
        return
    checkpoint, session.history = newest
    check_vocabulary(checkpoint.path, checkpoint.meta["vocabulary"], session.run)
    corpus = session.corpus
    if checkpoint.meta["text"] != corpus.files[TOKENS]["sha256"]:
        raise UserError(
            f"{corpus.directory}: not the text with which {checkpoint.path} was trained"
        )
    check_resumable(checkpoint, config, session.world)
    load_weights(session.model, checkpoint.read_weights(), checkpoint.path)
    load_state(session, checkpoint)
    session.progress = Progress(
        updates=checkpoint.meta["update"],
        position=DataPosition(*checkpoint.meta["position"]),
        validated=checkpoint.validation is not None,
    )


def load_state(session: Session, checkpoint: Checkpoint) -> None:
    """Copy the states of a checkpoint into the session's optimizer and scaler.

    The optimizer keeps the hyper-parameters of the recipe. Raises UserError if the kind or shape of
    a state does not match.
    """
    state = checkpoint.read_state()
    path = checkpoint.path / STATE
    optimizer, scaler = session.optimizer, session.scaler
    saved = state["optimizer"]["state"]
    chosen = OPTIMIZERS[session.recipe.train.optimizer]
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    if not saved or not saved.keys() <= set(range(len(parameters))):
        raise UserError(f"{path}: belongs to the optimizer of another model: {RESTORE}")
    for number, moments in saved.items():
        there = {name: shape_and_dtype(value) for name, value in moments.items()}
        here = dict.fromkeys(chosen.scalars, "() float32")
        here |= dict.fromkeys(chosen.moments, shape_and_dtype(parameters[number]))
        if there != here:
            raise UserError(
                f"{path}: the optimizer's state of parameter {number} is {there} "
                f"in the checkpoint and {here} in the run: {RESTORE}"
            )
    if state["scaler"].keys() != scaler.state_dict().keys():
        raise UserError(f"{path}: not the gradient scaler of train.precision: {state['scaler']}")
    optimizer.load_state_dict(optimizer.state_dict() | {"state": saved})
    scaler.load_state_dict(state["scaler"])


def check_resumable(checkpoint: Checkpoint, config: TrainConfig, world: World) -> None:
    """Raise UserError if resuming here would change the size of an update or leave a GPU idle."""
    processes = world.size
    batches, now = checkpoint.meta["batches"], config.accumulate * processes
    if now != batches:
        remedy = (
            f"give train.accumulate={batches // processes}"
            if batches % processes == 0
            else f"start a number of processes that divides {batches}"
        )
        raise UserError(
            f"{checkpoint.path}: made with {batches} batches per update, now {now} "
            f"(train.accumulate {config.accumulate}, processes {processes}): {remedy}"
        )
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES") == ""
    if checkpoint.meta["device"] == "cuda" and world.device.type == "cpu" and not chosen:
        raise UserError(
            f"{checkpoint.path}: trained on a GPU, but none is visible here: see dynconv doctor, "
            "or set CUDA_VISIBLE_DEVICES= to continue on the CPU"
        )
