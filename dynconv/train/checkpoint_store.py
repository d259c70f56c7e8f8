"""Writes, lists, chooses and prunes the checkpoints of a run; `Validation.quality` ranks them.

A checkpoint is written under a temporary name, then renamed. A thread does so while training goes
on; the scores of its validation are added to its meta.json afterwards.
"""

import hashlib
import io
import json
import os
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any, cast

import torch

from dynconv.errors import UserError, warn
from dynconv.files import (
    disk_errors,
    path_inside,
    replace_text,
    scratch_folder,
    set_aside,
    sync,
    write_through,
)
from dynconv.tasks import Validation
from dynconv.train.checkpoint import (
    AVERAGE,
    FORMAT,
    META,
    STATE,
    WEIGHTS,
    Checkpoint,
    CheckpointMeta,
)
from dynconv.train.run_directory import CHECKPOINTS, check_not_deleted
from dynconv.train.weights import Weights


class CheckpointStore:
    """The checkpoints of a run: those that training saves, and the average of its last ones."""

    def __init__(self, run: Path):
        self.run, self.directory = run, run / CHECKPOINTS
        self.average_path = self.directory / AVERAGE

    def list_paths(self) -> list[Path]:
        """Return the directories of all checkpoints that training left, readable or not."""
        paths = (file.parent for file in self.directory.glob(f"*/{META}"))
        return [path for path in paths if path.name.isdecimal() or path == self.average_path]

    def list_readable(self) -> list[Checkpoint]:
        """Return the readable checkpoints, oldest first; the average comes after what it averages.

        Leaves out checkpoints with a damaged meta.json and copies that a user made.
        """
        checkpoints = []
        for path in self.list_paths():
            with suppress(UserError):
                checkpoints.append(Checkpoint.open(path))
        checkpoints = [checkpoint for checkpoint in checkpoints if checkpoint.has_own_name]
        return sorted(checkpoints, key=lambda c: (c.meta["update"], c.path.name))

    def list_validated(self) -> list[Checkpoint]:
        """Return the checkpoints that have scores, oldest first, without the average."""
        return [c for c in self.list_readable() if c.validation and c.path != self.average_path]

    def choose(self, checkpoint: str) -> Checkpoint:
        """Return the `best` on the validation split, the `last`, or one by its name (`000500`).

        `last` is the average if there is one, unless training has gone on since.
        """
        if checkpoint not in ("best", "last"):
            return Checkpoint.open(self.directory / checkpoint)
        checkpoints = self.list_readable()
        if not checkpoints:
            raise UserError(f"{self.run}: no checkpoint in it yet")
        if checkpoint == "best":
            return max(checkpoints, key=lambda c: c.quality)
        return checkpoints[-1]

    def write(
        self, name: str, weights: Weights, state: dict | None, meta: dict[str, Any]
    ) -> Checkpoint:
        """Write a checkpoint; it appears under its name only when it is complete.

        Raises UserError if it cannot be written; earlier checkpoints are kept.
        """
        from safetensors.torch import save

        check_not_deleted(self.run)
        path = self.directory / name
        contiguous = {key: tensor.contiguous() for key, tensor in weights.items()}
        files: dict[str, bytes | memoryview] = {WEIGHTS: save(contiguous)}
        if state is not None:
            buffer = io.BytesIO()
            torch.save(state, buffer)
            files[STATE] = buffer.getbuffer()
        sums = {file: hashlib.sha256(data).hexdigest() for file, data in files.items()}
        meta = {"format": FORMAT, **meta, "sha256": sums}
        files[META] = json.dumps(meta, indent=1).encode()
        with disk_errors(path, kept="earlier checkpoints are untouched"), self.scratch() as scratch:
            part = scratch / name
            part.mkdir()
            for file, data in files.items():
                write_through(part / file, data)
            sync(part)
            if os.path.lexists(path):  # damaged, or with files of the user
                set_aside(path)
            os.replace(part, path)
            sync(self.directory)
        return Checkpoint(path, cast(CheckpointMeta, meta))

    def add_validation(self, name: str, validation: Validation) -> None:
        """Add the validation of a checkpoint that was written before it to meta.json."""
        meta = self.choose(name).meta | validation._asdict()
        path = path_inside(self.run, CHECKPOINTS, name, META)
        replace_text(path, json.dumps(meta, indent=1))

    def scratch(self) -> AbstractContextManager[Path]:
        """Return a folder for checkpoints that are being written or deleted."""
        return scratch_folder(path_inside(self.run, CHECKPOINTS, ".part"))

    def prune(self, keep: int) -> None:
        """Delete all but the newest checkpoint, the best, and the `keep` newest validated ones.

        Deletes only checkpoints that training wrote, and none to which a user has added files.
        """
        kept = [self.choose("last"), self.choose("best"), *self.list_validated()[-keep:]]
        kept_paths = {checkpoint.path for checkpoint in kept}
        numbered = [each for each in self.list_readable() if each.path != self.average_path]
        with self.scratch() as scratch:
            for checkpoint in numbered:
                if checkpoint.path not in kept_paths and not checkpoint.has_foreign_files:
                    os.replace(checkpoint.path, scratch / checkpoint.path.name)

    def has_average(self, updates: int) -> bool:
        """Return whether the average was made from a run of this many updates."""
        readable = self.list_readable()
        return any(c.path == self.average_path and c.meta["update"] == updates for c in readable)

    def discard_average(self) -> None:
        """Delete the average from when the run was shorter, unless a user has added files to it."""
        with suppress(UserError), self.scratch() as scratch:
            if not Checkpoint.open(self.average_path).has_foreign_files:
                os.replace(self.average_path, scratch / self.average_path.name)

    def recover_newest(self) -> Checkpoint | None:
        """Return the newest intact checkpoint that training wrote, or None if it wrote none.

        Reports damaged checkpoints and falls back to an older one, after renaming the damaged ones
        (`set_aside`). Raises UserError if all of them are damaged.
        """
        paths = [path for path in self.list_paths() if path != self.average_path]
        damaged = []
        for path in sorted(paths, key=lambda path: int(path.name), reverse=True):
            try:
                checkpoint = Checkpoint.open(path)
                if not checkpoint.has_own_name:
                    continue
                checkpoint.read_weights()
                checkpoint.read_state()
            except UserError as error:
                warn(f"{error}; going back to the checkpoint before it")
                damaged.append(path)
                continue
            for later in damaged:  # or they would count as the newest
                set_aside(later)
            return checkpoint
        if damaged:
            raise UserError(f"{self.run}: no intact checkpoint; name another run directory")
        return None
