"""Reads what runs of dynconv 0.1 stored elsewhere than runs of today."""

from pathlib import Path
from typing import Any

from dynconv.config import TrainConfig
from dynconv.errors import UserError
from dynconv.tasks import Validation
from dynconv.train.log import read_log


def is_unmarked_run(directory: Path) -> bool:
    """Return whether a directory is that of a run which began before runs had a mark."""
    if not (directory / "recipe.yaml").is_file():
        return False
    records = directory / "environment.json", *directory.glob("checkpoints/*/meta.json")
    found = (file.read_bytes() for file in records if file.is_file())
    return any(b'"dynconv' in data for data in found)  # its version, or the format


def history_in_log(checkpoint: Path, update: int, config: TrainConfig) -> list[dict[str, Any]]:
    """Return the validations before an update from log.jsonl, for a checkpoint that has none.

    Raises UserError when the log is missing and the recipe depends on it.
    """
    run = checkpoint.parent.parent
    if (run / "log.jsonl").exists():
        events = [e for e in read_log(run) if e["event"] == "valid" and e["update"] < update]
        if all(event.keys() >= set(Validation._fields) for event in events):
            return [{name: event[name] for name in Validation._fields} for event in events]
        raise UserError(f"{run / 'log.jsonl'}: a validation without loss, score or metric")
    if config.schedule == "plateau" or config.patience is not None:
        raise UserError(
            f"{run / 'log.jsonl'}: missing, and {checkpoint}, which dynconv 0.1 made, does not "
            "hold the validations that train.schedule plateau and train.patience depend on"
        )
    return []
