"""Saves the checkpoints of a session: rank 0 writes, the others wait."""

import json

from dynconv.files import path_inside, replace_text
from dynconv.tasks import Validation
from dynconv.text.prepared import VOCABULARY
from dynconv.train.checkpoint import Checkpoints, average_weights, load_weights
from dynconv.train.run_directory import CHECKPOINTS
from dynconv.train.session import Session


def save_checkpoint(session: Session) -> None:
    """Save a checkpoint that has no scores yet."""
    progress, files = session.progress, session.corpus.files
    meta = {
        "update": progress.updates,
        "place": progress.place,
        "batches": session.recipe.train.accumulate * session.ranks.size,
        "device": session.ranks.device.type,
        "loss": None,
        "score": None,
        "history": [validation._asdict() for validation in session.history],
        "vocabulary": files[VOCABULARY]["sha256"],
        "text": files["train.tokens"]["sha256"],  # a place means nothing in another text
    }

    def write() -> None:
        optimizer, scaler = session.optimizer.state_dict(), session.scaler.state_dict()
        state = {"optimizer": optimizer, "scaler": scaler}
        Checkpoints(session.run).write(progress.name, session.model, state, meta)

    session.ranks.on_rank_zero(write)


def save_validation(session: Session) -> None:
    """Add the newest validation to the newest checkpoint."""

    def write() -> None:
        checkpoint = Checkpoints(session.run).choose(session.progress.name)
        meta = checkpoint.meta | session.history[-1]._asdict()
        path = path_inside(session.run, CHECKPOINTS, checkpoint.path.name, "meta.json")
        replace_text(path, json.dumps(meta, indent=1))

    session.ranks.on_rank_zero(write)


def prune(session: Session) -> None:
    """Delete the checkpoints that `train.keep` does not ask for."""
    keep = session.recipe.train.keep
    session.ranks.on_rank_zero(lambda: Checkpoints(session.run).prune(keep))


def load_average(session: Session) -> None:
    """Load the mean weights of the last train.average validated checkpoints into the model."""
    count, checkpoints = session.recipe.train.average, Checkpoints(session.run)
    newest = session.ranks.on_rank_zero(lambda: checkpoints.validated[-count:])
    load_weights(session.model, average_weights(newest), checkpoints.directory)


def save_average(session: Session, validation: Validation) -> None:
    """Save the averaged weights, which the model has now, with their validation."""
    checkpoints = Checkpoints(session.run)
    meta = checkpoints.choose("last").meta | validation._asdict()

    def write() -> None:
        checkpoints.discard_average()
        checkpoints.write(checkpoints.average.name, session.model, None, meta)

    session.ranks.on_rank_zero(write)
