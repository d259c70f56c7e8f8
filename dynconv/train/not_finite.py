"""Ends training whose loss or gradient is not finite, and shows the text of the last update."""

import json
from typing import NoReturn

from dynconv.errors import UserError
from dynconv.files import path_inside, replace_text
from dynconv.train.data import UpdateBatches
from dynconv.train.run_directory import NOT_FINITE, RECIPE
from dynconv.train.session import Session
from dynconv.train.update import SkippedUpdate


class DivergedError(UserError):
    """Reports that training diverged: a loss or a gradient is not finite."""


def raise_not_finite(session: Session, update: UpdateBatches, skipped: SkippedUpdate) -> NoReturn:
    """Write this rank's batches of a skipped update as text; raise DivergedError."""
    run, number = session.run, session.progress.updates + 1
    batches = [
        {
            "loss": str(loss.item()),  # JSON has no nan
            "examples": [
                {"example": int(i), **session.examples.as_text(i, session.vocabularies)}
                for i in indices
            ],
        }
        for loss, indices in zip(skipped.losses, update.indices, strict=True)
    ]
    path = path_inside(run, NOT_FINITE.format(update=number, rank=session.world.rank))
    replace_text(path, json.dumps(batches, indent=1, ensure_ascii=False))
    paths = session.world.gather(str(path))  # waits until all are written
    after = ", after others that were skipped" if session.skipped_in_a_row > 1 else ""
    raise DivergedError(
        f"{run}: loss {skipped.mean_loss:g}, gradient norm {skipped.grad_norm:g} at update {number}"
        f"{after}: continue from the last checkpoint with a lower train.lr or more train.warmup "
        f"in {run / RECIPE}; the sentences are in {', '.join(paths)}"
    )
