"""Records how a run was started: its resolved recipe, and the machine of each start."""

import json
import platform
from importlib import metadata
from pathlib import Path

import torch
from pydantic import ConfigDict
from typing_extensions import TypedDict

from dynconv.config import dump_recipe
from dynconv.config.schema import PositiveInt, validate_json
from dynconv.files import path_inside, read_json, replace_text
from dynconv.machine import commit, device_name
from dynconv.train.run_directory import ENVIRONMENT, RECIPE
from dynconv.train.session import Session


def record_start(session: Session) -> None:
    """Write recipe.yaml, and add this start to environment.json."""
    run, device = session.run, session.ranks.device
    replace_text(path_inside(run, RECIPE), dump_recipe(session.recipe))
    path = path_inside(run, ENVIRONMENT)
    start = {
        "python": platform.python_version(),
        **{name: metadata.version(name) for name in ("dynconv", "torch", "tokenizers", "numpy")},
        "commit": commit(),
        "device": device_name(device),
        "threads": torch.get_num_threads(),
        "processes": session.ranks.size,
    }
    replace_text(path, json.dumps([*read_starts(run), start], indent=1))


class StartRecord(TypedDict):
    """The fields of an entry of environment.json that are read back."""

    __pydantic_config__ = ConfigDict(extra="allow")

    threads: PositiveInt


def read_starts(run: Path) -> list[StartRecord]:
    """Return the entries of environment.json; [] if it is missing or a power failure emptied it."""
    path, remedy = run / ENVIRONMENT, "remove it; training does not need it"
    if not path.exists() or not path.read_bytes().strip(b"\0"):
        return []
    return validate_json(list[StartRecord], read_json(path, remedy), path, remedy)
