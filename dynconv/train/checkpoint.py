"""Checkpoints: directories written under a temporary name, then renamed.

    checkpoints/000500/model.safetensors    the weights, by name
                       state.pt             optimizer and gradient scaler: tensors and numbers
                       meta.json            update, position in the data, scores, those of all
                                            earlier validations, hashes of vocabulary and text,
                                            and the checksums of the other two

The learning rate is a function of the update and of those scores, and the random numbers of a batch
are a function of the seed and its position, so a checkpoint is all that resuming needs. A thread
writes it while its weights are validated; afterwards the scores are added to meta.json.

Reading a checkpoint executes no code from it: safetensors files contain only tensors, and state.pt
is read with `weights_only=True`.
"""

import hashlib
import io
import json
import math
import os
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple, NotRequired, cast

import torch
from pydantic import ConfigDict
from torch import nn
from typing_extensions import TypedDict

from dynconv.config import TrainConfig
from dynconv.config.schema import NonNegativeInt, Number, PositiveInt, validated_content
from dynconv.errors import UserError, warn
from dynconv.files import (
    TEMPORARY,
    disk_errors,
    path_inside,
    read_json,
    replace_text,
    scratch_folder,
    set_aside,
    sync,
    write_through,
)
from dynconv.tasks import Validation
from dynconv.train.legacy import validations_in_log
from dynconv.train.run_directory import CHECKPOINTS, check_not_deleted
from dynconv.train.weights import Weights, named_weights

FORMAT = "dynconv checkpoint 3"
RESTORE = "restore the file, or remove this checkpoint"
"""the remedy that errors in a checkpoint name"""
AVERAGE = "average"
"""the name of the checkpoint with the averaged weights; the others are named by their updates"""


class ValidationRecord(TypedDict):
    """An earlier validation, as meta.json records it."""

    loss: Number
    score: Number
    metric: str


class CheckpointMeta(TypedDict):
    """The content of meta.json."""

    __pydantic_config__ = ConfigDict(extra="allow")  # type: ignore[misc]

    format: Literal["dynconv checkpoint 3"]
    update: NonNegativeInt
    place: tuple[NonNegativeInt, NonNegativeInt, NonNegativeInt]
    batches: PositiveInt
    """batches in one update, over all ranks"""
    device: str
    loss: Number | None
    score: Number | None
    metric: NotRequired[str]
    history: NotRequired[list[ValidationRecord]]
    """validations so far; missing from runs of dynconv 0.1"""
    vocabulary: str
    """sha256 of the run's vocabulary.json"""
    text: str
    """sha256 of the training text, train.tokens"""
    sha256: dict[str, str]
    """the sha256 of each of the checkpoint's files, keyed by its name"""


class OptimizerState(TypedDict):
    """An optimizer's state by parameter index; its hyper-parameters are taken from the recipe."""

    __pydantic_config__ = ConfigDict(extra="allow")  # type: ignore[misc]

    state: dict[int, dict[str, Any]]


class TrainingState(TypedDict):
    """The content of state.pt."""

    optimizer: OptimizerState
    scaler: dict[str, NonNegativeInt | Number]


class Checkpoint(NamedTuple):
    """A complete checkpoint on disk."""

    path: Path
    meta: CheckpointMeta

    @classmethod
    def open(cls, path: Path) -> "Checkpoint":
        """Open the checkpoint in a directory; UserError if dynconv did not write it."""
        file = path / "meta.json"
        try:
            tree = read_json(file, RESTORE)
        except FileNotFoundError:
            raise UserError(f"{path}: no checkpoint here (it has no meta.json)") from None
        meta = validated_content(CheckpointMeta, tree, file, RESTORE)
        if (meta["loss"] is None) != (meta["score"] is None):
            raise UserError(f"{file}: only one of loss and score is null: {RESTORE}")
        return cls(path, meta)

    @property
    def run(self) -> Path:
        """The run directory."""
        return self.path.parent.parent

    @property
    def has_own_name(self) -> bool:
        """Whether it has the name that training gave it, unlike a copy that a user made."""
        name = self.path.name
        return name == AVERAGE or name.isdecimal() and int(name) == self.meta["update"]

    @property
    def has_foreign_files(self) -> bool:
        """Whether it contains files that training did not put there."""
        ours = {"meta.json", "model.safetensors", "state.pt"}
        names = set(os.listdir(self.path)) - ours
        return any(not name.startswith(TEMPORARY) for name in names)

    @property
    def validation(self) -> Validation | None:
        """The validation of this checkpoint, or None if there was none yet."""
        loss, score = self.meta["loss"], self.meta["score"]
        if loss is None or score is None:
            return None
        return Validation(loss, score, self.meta.get("metric", ""))

    @property
    def quality(self) -> tuple[float, float]:
        """Higher is better: the score on the validation split, then the lower loss."""
        return self.validation.quality if self.validation else (-math.inf, -math.inf)

    def read_weights(self) -> Weights:
        """Read the weights by name; UserError when the file is damaged."""
        from safetensors import SafetensorError
        from safetensors.torch import load

        data = self._read("model.safetensors")
        try:
            return load(data)
        except (SafetensorError, KeyError) as error:  # KeyError: a dtype that PyTorch lacks
            path = self.path / "model.safetensors"
            raise UserError(f"{path}: cannot be read as safetensors ({error}): {RESTORE}") from None

    def read_state(self) -> dict[str, Any]:
        """Read the states of optimizer and scaler; UserError when the file is damaged."""
        data, path = self._read("state.pt"), self.path / "state.pt"
        try:
            state = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
        except Exception as error:  # pickle raises many kinds for a foreign file
            cause = str(error).split("\n")[0]
            raise UserError(
                f"{path}: not written by dynconv; nothing was executed ({cause})"
            ) from None
        return validated_content(TrainingState, state, path, RESTORE)

    def _read(self, name: str) -> bytes:
        path = self.path / name
        try:
            data = path.read_bytes()
        except OSError as error:
            raise UserError(f"{path}: {error.strerror}") from None
        if hashlib.sha256(data).hexdigest() != self.meta["sha256"].get(name):
            raise UserError(f"{path}: damaged: its checksum differs from the one in meta.json")
        return data

    def validations(self, config: TrainConfig) -> list[Validation]:
        """Return all validations up to this checkpoint, oldest first."""
        if "history" in self.meta:
            earlier = [Validation(**each) for each in self.meta["history"]]
        else:  # of dynconv 0.1
            earlier = validations_in_log(self.run, self.meta["update"], config)
        return [*earlier, self.validation] if self.validation else earlier


class Checkpoints:
    """The checkpoints of a run: those that training saves, and the average of its last ones."""

    def __init__(self, run: Path):
        self.run, self.directory = run, run / CHECKPOINTS
        self.average_path = self.directory / AVERAGE

    def list_paths(self) -> list[Path]:
        """Return the directories of all checkpoints that training left, readable or not."""
        paths = (file.parent for file in self.directory.glob("*/meta.json"))
        return [path for path in paths if path.name.isdecimal() or path == self.average_path]

    def list_readable(self) -> list[Checkpoint]:
        """Return the readable checkpoints, oldest first; the average comes after those it averages.

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
        return [c for c in self.list_readable() if c.validation and c.path.name.isdecimal()]

    def choose(self, which: str) -> Checkpoint:
        """Return the `best` on the validation split, the `last`, or one by its name (`000500`).

        `last` is the average if there is one.
        """
        if which not in ("best", "last"):
            return Checkpoint.open(self.directory / which)
        checkpoints = self.list_readable()
        if not checkpoints:
            raise UserError(f"{self.run}: no checkpoint in it yet")
        if which == "best":
            return max(checkpoints, key=lambda c: c.quality)
        return checkpoints[-1]

    def write(
        self, name: str, model: nn.Module, state: dict | None, meta: dict[str, Any]
    ) -> Checkpoint:
        """Write a checkpoint; it appears under its name only when it is complete.

        Raises UserError if it cannot be written; earlier checkpoints are kept.
        """
        from safetensors.torch import save

        check_not_deleted(self.run)
        path = self.directory / name
        files: dict[str, bytes | memoryview] = {"model.safetensors": save(named_weights(model))}
        if state is not None:
            buffer = io.BytesIO()
            torch.save(state, buffer)
            files["state.pt"] = buffer.getbuffer()
        sums = {file: hashlib.sha256(data).hexdigest() for file, data in files.items()}
        meta = {"format": FORMAT, **meta, "sha256": sums}
        files["meta.json"] = json.dumps(meta, indent=1).encode()
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
        path = path_inside(self.run, CHECKPOINTS, name, "meta.json")
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
        averages = (c for c in self.list_readable() if c.path == self.average_path)
        return any(average.meta["update"] == updates for average in averages)

    def discard_average(self) -> None:
        """Delete the average of a run that was shorter, unless a user has added files to it."""
        with suppress(UserError), self.scratch() as scratch:
            if not Checkpoint.open(self.average_path).has_foreign_files:
                os.replace(self.average_path, scratch / self.average_path.name)

    def find_intact(self) -> Checkpoint | None:
        """Return the newest intact checkpoint that training wrote, or None if it wrote none.

        Reports damaged checkpoints and falls back to an older one. Raises UserError if all of
        them are damaged.
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
            raise UserError(f"{self.run}: no intact checkpoint; name another --run to begin anew")
        return None
