"""Saves the checkpoints of a session, and restores a session from them.

Rank 0 writes and the others wait. What is restored must fit the recipe, the text and the machine.
"""

import os
from concurrent.futures import Executor

from dynconv.config import TrainConfig
from dynconv.config.optimizers import OPTIMIZERS
from dynconv.errors import UserError
from dynconv.files import path_inside
from dynconv.tasks import Validation
from dynconv.text.prepared import TOKENS, VOCABULARY
from dynconv.train.checkpoint import AVERAGE, RESTORE, STATE, Checkpoint
from dynconv.train.data import DataPosition
from dynconv.train.distributed import Ranks
from dynconv.train.run_directory import CHECKPOINTS, check_vocabulary
from dynconv.train.session import Progress, Session
from dynconv.train.weights import average_weights, load_weights, shape_and_dtype


def save_checkpoint(session: Session, writer: Executor) -> None:
    """Start to save a checkpoint that has no scores yet, in a thread of rank 0.

    The weights must not change before `finish_saving`.
    """
    progress, files = session.progress, session.corpus.files
    meta = {
        "update": progress.updates,
        "place": progress.position,
        "batches": session.recipe.train.accumulate * session.ranks.size,
        "device": session.ranks.device.type,
        "loss": None,
        "score": None,
        "history": [validation._asdict() for validation in session.history],
        "vocabulary": files[VOCABULARY]["sha256"],
        "text": files[TOKENS]["sha256"],  # a position means nothing in another text
    }

    def write() -> None:
        optimizer, scaler = session.optimizer.state_dict(), session.scaler.state_dict()
        state = {"optimizer": optimizer, "scaler": scaler}
        session.checkpoints.write(progress.checkpoint_name, session.model, state, meta)

    if session.ranks.is_rank_zero:
        session.saving = writer.submit(write)


def finish_saving(session: Session) -> None:
    """Wait until the checkpoint is on the disk; raise UserError if it could not be written."""
    session.ranks.on_rank_zero(session.saving.result if session.saving else lambda: None)


def save_validation(session: Session) -> None:
    """Add the newest validation to the newest checkpoint."""
    name, validation = session.progress.checkpoint_name, session.history[-1]
    session.ranks.on_rank_zero(lambda: session.checkpoints.add_validation(name, validation))


def prune(session: Session) -> None:
    """Delete the checkpoints that `train.keep_checkpoints` does not ask for."""
    keep = session.recipe.train.keep_checkpoints
    session.ranks.on_rank_zero(lambda: session.checkpoints.prune(keep))


def load_averaged_weights(session: Session) -> None:
    """Load the mean weights of the last `train.average_checkpoints` that were validated."""
    count, checkpoints = session.recipe.train.average_checkpoints, session.checkpoints
    newest = session.ranks.on_rank_zero(lambda: checkpoints.list_validated()[-count:])
    mean = average_weights(checkpoint.read_weights() for checkpoint in newest)
    load_weights(session.model, mean, checkpoints.directory)


def save_average(session: Session, validation: Validation) -> None:
    """Save the averaged weights, which the model has now, with their validation."""
    checkpoints = session.checkpoints

    def write() -> None:
        meta = checkpoints.choose("last").meta | validation._asdict()
        checkpoints.discard_average()
        checkpoints.write(AVERAGE, session.model, None, meta)

    session.ranks.on_rank_zero(write)


def restore(session: Session) -> None:
    """Continue from the newest intact checkpoint, if there is one; rank 0 finds it."""
    config, checkpoints = session.recipe.train, session.checkpoints

    def find() -> tuple[Checkpoint, list[Validation]] | None:
        path_inside(session.run, CHECKPOINTS)
        checkpoint = checkpoints.newest_intact()
        if checkpoint is None:
            return None
        checkpoints.prune(config.keep_checkpoints)
        return checkpoint, checkpoint.validations(config)

    newest = session.ranks.on_rank_zero(find)
    if newest is None:
        return
    checkpoint, session.history = newest
    check_vocabulary(checkpoint.path, checkpoint.meta["vocabulary"], session.run)
    corpus = session.corpus
    if checkpoint.meta["text"] != corpus.files[TOKENS]["sha256"]:
        raise UserError(
            f"{corpus.directory}: not the text with which {checkpoint.path} was trained"
        )
    check_resumable(checkpoint, config, session.ranks)
    load_weights(session.model, checkpoint.read_weights(), checkpoint.path)
    load_state(session, checkpoint)
    session.progress = Progress(
        updates=checkpoint.meta["update"],
        position=DataPosition(*checkpoint.meta["place"]),
        validated=checkpoint.validation is not None,
    )


def load_state(session: Session, checkpoint: Checkpoint) -> None:
    """Copy the states of a checkpoint into the session's optimizer and scaler.

    The optimizer keeps the hyper-parameters of the recipe. Raises UserError if the kind or shape of
    a state does not match.
    """
    state, path = checkpoint.read_state(), checkpoint.path / STATE
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


def check_resumable(checkpoint: Checkpoint, config: TrainConfig, ranks: Ranks) -> None:
    """Raise UserError if resuming here would change the size of an update or leave a GPU idle."""
    batches, now = checkpoint.meta["batches"], config.accumulate * ranks.size
    if now != batches:
        remedy = (
            f"give train.accumulate={batches // ranks.size}"
            if batches % ranks.size == 0
            else f"start a number of processes that divides {batches}"
        )
        raise UserError(
            f"{checkpoint.path}: made with {batches} batches per update, now {now} "
            f"(train.accumulate {config.accumulate}, processes {ranks.size}): {remedy}"
        )
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES") == ""
    if checkpoint.meta["device"] == "cuda" and ranks.device.type == "cpu" and not chosen:
        raise UserError(
            f"{checkpoint.path}: trained on a GPU, but none is visible here: see dynconv doctor, "
            "or set CUDA_VISIBLE_DEVICES= to continue on the CPU"
        )
