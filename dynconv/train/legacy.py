"""Reads what runs of dynconv 0.1 stored differently."""

import re
from pathlib import Path
from typing import Any

from dynconv.config import TrainConfig
from dynconv.errors import UserError
from dynconv.tasks import Validation
from dynconv.train.events import LOG, read_log
from dynconv.train.weights import Weights


def is_unmarked_run(directory: Path) -> bool:
    """Return whether this is the directory of a run that began before runs were marked."""
    if not (directory / "recipe.yaml").is_file():
        return False
    records = directory / "environment.json", *directory.glob("checkpoints/*/meta.json")
    found = (file.read_bytes() for file in records if file.is_file())
    return any(b'"dynconv' in data for data in found)  # its version, or the format


def validations_in_log(run: Path, update: int, config: TrainConfig) -> list[Validation]:
    """Return the validations before an update, for a checkpoint without them.

    Raises UserError if the run has no log and its recipe depends on them.
    """
    log = run / LOG
    if log.exists():
        events = [e for e in read_log(run) if e["event"] == "valid" and e["update"] < update]
        if not all(event.keys() >= set(Validation._fields) for event in events):
            raise UserError(f"{log}: a validation without loss, score or metric")
        return [Validation(e["loss"], e["score"], e["metric"]) for e in events]
    if config.schedule == "plateau" or config.patience is not None:
        raise UserError(
            f"{log}: missing, and checkpoint {update}, which dynconv 0.1 wrote, does not "
            "contain the validations that train.schedule plateau and train.patience depend on"
        )
    return []


def rename_meta(tree: Any, today: str) -> Any:
    """Return the content of meta.json in the format `today`; format 3 called the position a place.

    Content in any other format is returned as it is.
    """
    if not isinstance(tree, dict) or tree.get("format") != "dynconv checkpoint 3":
        return tree
    renamed = {"position" if key == "place" else key: value for key, value in tree.items()}
    return renamed | {"format": today}


def rename_weights(weights: Weights) -> Weights:
    """Return weights under today's names; ConvS2S had `enter` and `leave` around its layers."""
    today = {"enter": "in_proj", "leave": "out_proj"}
    old = re.compile(r"(?<=coder\.)(enter|leave)(?=\.)")
    return {old.sub(lambda m: today[m[0]], name): weight for name, weight in weights.items()}
