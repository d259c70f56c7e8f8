"""The state of a training run, which the other modules of this package read and change."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import torch
from torch import nn

from dynconv.config import Recipe, TrainConfig
from dynconv.config.schedules import SCHEDULES
from dynconv.tasks import EncodedSplit, Task, Validation
from dynconv.text import Examples, PreparedCorpus, Vocabularies
from dynconv.train.checkpoint_store import CheckpointStore
from dynconv.train.data import DataPosition
from dynconv.train.distributed import World
from dynconv.train.stopwatch import Stopwatch


class Progress(NamedTuple):
    """How far training has come."""

    updates: int = 0
    position: DataPosition = DataPosition()
    """position in the stream of batches"""
    validated: bool = False
    """whether the validation that follows these updates is done"""

    @property
    def checkpoint_name(self) -> str:
        """The name of the checkpoint that is saved here."""
        return f"{self.updates:06d}"


@dataclass
class Session:
    """Everything that updates read and change, from the start of a process to its end.

    A checkpoint contains the model, the optimizer, the scaler, the progress and the history.
    """

    run: Path
    """the run directory"""
    recipe: Recipe
    """the recipe, whose train.precision is no longer auto"""
    task: Task
    world: World
    vocabularies: Vocabularies
    corpus: PreparedCorpus
    examples: Examples
    """the examples that the task trains on"""
    left_out: int
    """number of examples that training leaves out, as they exceed data.max_example_tokens or
    train.batch_tokens"""
    validation_split: EncodedSplit
    model: nn.Module
    loss_module: nn.Module
    """the model's loss of a batch; under torchrun it also averages the gradients over ranks"""
    optimizer: torch.optim.Optimizer
    scaler: torch.amp.GradScaler
    """the scaler of the loss in float16, which does nothing in other precisions"""
    stopwatch: Stopwatch
    """measures where the time goes"""
    progress: Progress = Progress()
    history: list[Validation] = field(default_factory=list)
    """the validations so far, which the schedule `plateau` and `patience` depend on"""
    skipped_in_a_row: int = 0
    """updates in a row that were skipped because loss or gradient was not finite"""

    @property
    def checkpoints(self) -> CheckpointStore:
        """The checkpoints in the run directory."""
        return CheckpointStore(self.run)

    @property
    def checkpoint_is_due(self) -> bool:
        """Whether a checkpoint and a validation follow the last update."""
        updates, config = self.progress.updates, self.recipe.train
        return updates > 0 and (updates % config.checkpoint_every == 0 or updates == config.updates)

    @property
    def is_finished(self) -> bool:
        """Whether training ends here."""
        config = self.recipe.train
        return self.progress.updates >= config.updates or ends_early(config, self.history)

    def add_to_history(self, validation: Validation) -> None:
        """Add the validation that follows the updates so far."""
        self.history.append(validation)
        self.progress = self.progress._replace(validated=True)


def ends_early(config: TrainConfig, history: Sequence[Validation]) -> bool:
    """Return whether training ends before its last update.

    True if the schedule ends training, or if the last train.patience validations have not improved
    the score; NaN is worse than any other score.
    """
    losses = [validation.loss for validation in history]
    if SCHEDULES[config.schedule].ends(config, losses):
        return True
    if config.patience is None or len(history) <= config.patience:
        return False
    scores = [validation.quality[0] for validation in history]
    return max(scores[-config.patience :]) <= max(scores[: -config.patience])
