"""Saves the checkpoints of a session and their average: rank 0 writes, and the others wait."""

from concurrent.futures import Executor

from dynconv.tasks import Validation
from dynconv.text.prepared import TOKENS, VOCABULARY
from dynconv.train.checkpoint import AVERAGE
from dynconv.train.session import Session
from dynconv.train.weights import average_weights, load_weights


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
    """Add the newest validation to the newest checkpoint, and delete those that are not kept."""
    name, validation = session.progress.checkpoint_name, session.history[-1]

    def write() -> None:
        session.checkpoints.add_validation(name, validation)
        session.checkpoints.prune(session.recipe.train.keep_checkpoints)

    session.ranks.on_rank_zero(write)


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
