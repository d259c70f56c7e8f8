"""The run directory: its files, its lock, its records, and what must fit it.

A run directory contains everything that is needed to resume, use or reproduce the run:

.dynconv            marks the directory as one that dynconv made and may write to
recipe.yaml         the resolved recipe
vocabulary.json     the vocabulary, or both if source and target have their own
data/               the encoded training text, unless the recipe names a prepared corpus
environment.json    versions, commit and device: a list with one entry for each start
log.jsonl           see `dynconv.train.events`; tensorboard/ has the same curves
trace.json          with `profile: true`, a trace of one update
checkpoints/        see `dynconv.train.checkpoint`
not-finite-*.json   the sentences of an update whose loss or gradient was not finite
curves.png          drawn by `dynconv plot`
SPLIT.scores.json, SPLIT.hypotheses.txt     see `dynconv.train.trained`
trial.json, results.json                    see `dynconv.lab.tune`, `dynconv.lab.experiment.run`
"""

import json
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy
import tokenizers
import torch
from pydantic import ConfigDict
from typing_extensions import TypedDict

import dynconv
from dynconv.config import Recipe, dump_recipe
from dynconv.config.load import list_differences, load_recipe
from dynconv.errors import UserError
from dynconv.files import (
    LOCK,
    MARK,
    check_writable,
    is_claimed,
    locked,
    make_folder,
    path_inside,
    read_json,
    replace_text,
)
from dynconv.machine import current_commit, device_name
from dynconv.schema import PositiveInt, validated_content
from dynconv.train.distributed import World
from dynconv.train.legacy import is_unmarked_run
from dynconv.train.precision import with_precision

RECIPE = "recipe.yaml"
DATA = "data"
ENVIRONMENT = "environment.json"
TENSORBOARD = "tensorboard"
TRACE = "trace.json"
CHECKPOINTS = "checkpoints"
NOT_FINITE = "not-finite-{update:06d}-{rank}.json"
CURVES = "curves.png"
SCORES = "{split}.scores.json"
OUTPUTS = "{split}.hypotheses.txt"

MAY_CHANGE = ("published", "decode.", "profile", "train.accumulate", "train.timeout")
"""entries that may change when a run is resumed; `accumulate` only with the number of processes"""


def is_run(directory: Path) -> bool:
    """Return whether a directory is a run directory, so that files in it may be replaced."""
    return is_claimed(directory) or is_unmarked_run(directory)


def check_not_deleted(run: Path) -> None:
    """Raise UserError if the run directory was deleted or moved while training ran."""
    if not run.is_dir():
        raise UserError(
            f"{run}: deleted or moved while training ran: move it back, or the same command "
            "starts over"
        )


@contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Keep other training processes out of the folder of one run, or of many.

    Creates the folder if necessary, and deletes it again, with the parents that it needed, if
    training fails before writing to it.
    """
    made = [each for each in (folder, *folder.parents) if not each.exists()]
    make_folder(folder, "name another run directory")
    check_writable(folder / LOCK, f"allow it by chmod u+w {folder}, or name another run directory")
    message = f"{folder}: another process is training in it"
    try:
        with locked(folder / LOCK, message, "end it, or name another run directory"):
            yield
    except Exception:
        if folder.is_dir() and os.listdir(folder) == [MARK]:
            (folder / MARK).unlink()
        with suppress(OSError):  # not empty
            for each in made:
                each.rmdir()
        raise


def read_recipe(run: Path) -> Recipe:
    """Read the resolved recipe of a run."""
    try:
        return load_recipe(run / RECIPE)
    except UserError as error:
        raise UserError(
            f"{error} (if another version made this run, or a program that adds mixers, use that)"
        ) from None


def match_recorded_recipe(
    recipe: Recipe, run: Path, ignored: tuple[str, ...] = MAY_CHANGE
) -> Recipe:
    """Return the recipe with the precision that was chosen when the run began.

    Raises UserError if the run's recipe differs, except in keys that begin with one of `ignored`.
    """
    recorded = read_recipe(run)
    if recipe.train.precision == "auto":
        recipe = with_precision(recipe, recorded.train.precision)
    if changed := list_differences(recipe, recorded, ignored):
        raise UserError(
            f"{run} contains the run of another recipe ({'; '.join(changed)}): name another run "
            f"directory, give the same values, or put the new ones also into {run / RECIPE}"
        )
    return recipe


class StartRecord(TypedDict):
    """The fields of an entry of environment.json that are read back."""

    __pydantic_config__ = ConfigDict(extra="allow")  # type: ignore[misc]

    threads: PositiveInt


def read_starts(run: Path) -> list[StartRecord]:
    """Return the entries of environment.json; [] if it is missing or a power failure emptied it."""
    path, remedy = run / ENVIRONMENT, "remove it; training does not need it"
    if not path.exists() or not path.read_bytes().strip(b"\0"):
        return []
    return validated_content(list[StartRecord], read_json(path, remedy), path, remedy)


def record_start(run: Path, recipe: Recipe, world: World, examples: int, left_out: int) -> None:
    """Write recipe.yaml, and add this start to environment.json.

    examples  the number of training examples
    left_out  how many of them training leaves out, because they are too long
    """
    replace_text(path_inside(run, RECIPE), dump_recipe(recipe))
    path = path_inside(run, ENVIRONMENT)
    start = {
        "python": platform.python_version(),
        **{module.__name__: module.__version__ for module in (dynconv, torch, tokenizers, numpy)},
        "commit": current_commit(),
        "device": device_name(world.device),
        "threads": torch.get_num_threads(),
        "processes": world.size,
        "examples": examples,
        "left_out": left_out,
    }
    replace_text(path, json.dumps([*read_starts(run), start], indent=1))
