"""Reads what runs of dynconv 0.1 stored differently."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dynconv.config import TrainConfig
from dynconv.errors import UserError
from dynconv.tasks import Validation


def is_unmarked_run(directory: Path) -> bool:
    """Return whether this is the directory of a run that began before runs were marked."""
    if not (directory / "recipe.yaml").is_file():
        return False
    records = directory / "environment.json", *directory.glob("checkpoints/*/meta.json")
    found = (file.read_bytes() for file in records if file.is_file())
    return any(b'"dynconv' in data for data in found)  # its version, or the format


def history_in_log(
    log: Path, events: Sequence[Mapping[str, Any]] | None, update: int, config: TrainConfig
) -> list[dict[str, Any]]:
    """Return the validations before an update, for a checkpoint that has no history.

    events: those of the log; None if the run has no log. Raises UserError if the run has none and
    its recipe depends on the history.
    """
    if events is not None:
        earlier = [e for e in events if e["event"] == "valid" and e["update"] < update]
        if all(event.keys() >= set(Validation._fields) for event in earlier):
            return [{name: event[name] for name in Validation._fields} for event in earlier]
        raise UserError(f"{log}: a validation without loss, score or metric")
    if config.schedule == "plateau" or config.patience is not None:
        raise UserError(
            f"{log}: missing, and checkpoint {update}, which dynconv 0.1 wrote, does not "
            "contain the validations that train.schedule plateau and train.patience depend on"
        )
    return []
