"""Averages the last checkpoints of a finished run: loads, validates and saves the mean weights."""

from dynconv.tasks import Validation
from dynconv.train.checkpoint import AVERAGE
from dynconv.train.log import Log
from dynconv.train.session import Session
from dynconv.train.validate import validate
from dynconv.train.weights import average_weights, load_weights, named_weights


def complete_average(session: Session, log: Log) -> None:
    """Load, validate and save the average of the last checkpoints, unless it is there already."""
    done = session.progress.updates
    if session.checkpoints.has_average(done):
        return
    count, asked = load_averaged_weights(session), session.recipe.train.average_checkpoints
    validation = validate(session)
    save_average(session, validation)
    log.log_event("average", done, **validation._asdict())
    all_there = "" if count == asked else f", not {asked}, because there are no more"
    described = session.task.describe_validation(validation)
    log.say(f"average of {count} checkpoint{'s' * (count > 1)}{all_there}: {described}")


def load_averaged_weights(session: Session) -> int:
    """Load the mean weights of the last `train.average_checkpoints` that were validated.

    Returns how many there were.
    """
    count, checkpoints = session.recipe.train.average_checkpoints, session.checkpoints
    newest = session.world.on_rank_zero(lambda: checkpoints.list_validated()[-count:])
    mean = average_weights(checkpoint.read_weights() for checkpoint in newest)
    load_weights(session.model, mean, checkpoints.directory)
    return len(newest)


def save_average(session: Session, validation: Validation) -> None:
    """Save the averaged weights, which the model has now, with their validation."""
    checkpoints = session.checkpoints

    def write() -> None:
        meta = checkpoints.choose("last").meta | validation._asdict()
        checkpoints.discard_average()
        checkpoints.write(AVERAGE, named_weights(session.model), None, meta)

    session.world.on_rank_zero(write)
