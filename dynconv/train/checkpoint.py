"""A checkpoint: a directory with all that resuming needs.

    checkpoints/000500/model.safetensors    the weights, by name
                       state.pt             optimizer and gradient scaler: tensors and numbers
                       meta.json            update, position in the data, the scores of this
                                            and every earlier validation, hashes of vocabulary
                                            and text, and the checksums of the other two

The learning rate is a function of the update and of these scores, and the random numbers of a batch
are a function of the seed and its position, so nothing else has to be saved.

Reading a checkpoint executes no code from it: safetensors files contain only tensors, and state.pt
is read with `weights_only=True`.
"""

import hashlib
import io
import math
import os
from pathlib import Path
from typing import Any, Literal, NamedTuple, NotRequired, get_args

import torch
from pydantic import ConfigDict
from typing_extensions import TypedDict

from dynconv.config import TrainConfig
from dynconv.errors import UserError
from dynconv.files import TEMPORARY, read_json
from dynconv.schema import NonNegativeInt, Number, PositiveInt, validated_content
from dynconv.tasks import Validation
from dynconv.train.legacy import rename_meta, rename_weights, validations_in_log
from dynconv.train.weights import Weights

WEIGHTS = "model.safetensors"
STATE = "state.pt"
META = "meta.json"
RESTORE = "restore the file, or remove this checkpoint"
"""the remedy that errors in a checkpoint name"""
AVERAGE = "average"
"""the name of the checkpoint with the averaged weights; the others are named by their updates"""
CheckpointFormat = Literal["dynconv checkpoint 4"]
FORMAT: CheckpointFormat = get_args(CheckpointFormat)[0]
"""the format of checkpoints that are written today"""


class ValidationRecord(TypedDict):
    """An earlier validation, as meta.json records it."""

    loss: Number
    score: Number
    metric: str


class CheckpointMeta(TypedDict):
    """The content of meta.json."""

    __pydantic_config__ = ConfigDict(extra="allow")  # type: ignore[misc]

    format: CheckpointFormat
    update: NonNegativeInt
    position: tuple[NonNegativeInt, NonNegativeInt, NonNegativeInt]
    """the `DataPosition` from which training resumes"""
    batches: PositiveInt
    """batches in one update, over all ranks"""
    device: str
    loss: Number | None
    score: Number | None
    metric: NotRequired[str]
    history: NotRequired[list[ValidationRecord]]
    """validations so far; missing from runs of version 0.1"""
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
        """Open the checkpoint in a directory. Raises UserError if dynconv did not write it."""
        file = path / META
        try:
            tree = read_json(file, RESTORE)
        except FileNotFoundError:
            raise UserError(f"{path}: no checkpoint here (it has no {META})") from None
        meta = validated_content(CheckpointMeta, rename_meta(tree, FORMAT), file, RESTORE)
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
        names = set(os.listdir(self.path)) - {WEIGHTS, STATE, META}
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
        """Read the weights by name. Raises UserError when the file is damaged."""
        from safetensors import SafetensorError
        from safetensors.torch import load

        data = self._read(WEIGHTS)
        try:
            return rename_weights(load(data))
        except (SafetensorError, KeyError) as error:  # KeyError: a dtype that PyTorch lacks
            path = self.path / WEIGHTS
            raise UserError(f"{path}: cannot be read as safetensors ({error}): {RESTORE}") from None

    def read_state(self) -> dict[str, Any]:
        """Read the states of optimizer and scaler. Raises UserError when the file is damaged."""
        path = self.path / STATE
        data = self._read(STATE)
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
            raise UserError(f"{path}: damaged: its checksum differs from the one in {META}")
        return data

    def validations(self, config: TrainConfig) -> list[Validation]:
        """Return all validations up to this checkpoint, oldest first."""
        if "history" in self.meta:
            earlier = [Validation(**each) for each in self.meta["history"]]
        else:  # a run of version 0.1
            earlier = validations_in_log(self.run, self.meta["update"], config)
        return [*earlier, self.validation] if self.validation else earlier
