"""The interface of a task, and the records that it returns."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from torch import Tensor, nn

from dynconv.config import DataConfig, Recipe
from dynconv.errors import UserError
from dynconv.score import Perplexity, Score
from dynconv.text import Batch, Examples, PreparedCorpus, Vocabularies

M = TypeVar("M", bound=nn.Module)
AnyTask = TypeVar("AnyTask", bound="Task")


class EncodedSplit(NamedTuple):
    """A split to validate on, in memory."""

    examples: Examples
    references: list[str]
    """the reference output of each example; empty if the task scores no outputs"""


class Validation(NamedTuple):
    """The result of one validation."""

    loss: float
    """the loss in nats per token, without label smoothing"""
    score: float
    """the score, where higher is better: by the recipe's metric, 0 to 100, of greedy outputs, or
    what a task without outputs uses instead"""
    metric: str
    """name of the score"""

    @property
    def quality(self) -> tuple[float, float]:
        """A key that orders validations: by score, then by lower loss; NaN is worst."""
        if math.isnan(self.loss) or math.isnan(self.score):
            return -math.inf, -math.inf
        return self.score, -self.loss


@dataclass(frozen=True)
class SplitScores:
    """The scores of a model on a split of a text."""

    amount_in_words: str
    """what was scored: 1,000 sentences"""
    seconds: float
    settings: dict[str, Any]
    """settings of decoding or scoring, as SPLIT.scores.json records them"""
    settings_in_words: str
    scores: Sequence[Score | Perplexity]
    """the scores, the recipe's metric first; `str` formats each as one line"""
    outputs: list[str] = field(default_factory=list)
    """the outputs, one line per source line; empty if the task scores no outputs"""
    shown: list[dict[str, str]] = field(default_factory=list)
    """some outputs, for the terminal, each with what it is compared with: texts by their labels"""


class Task(ABC, Generic[M]):
    """The interface of a task for training, validation and evaluation of models of class M.

    `unpadded_batch` serves a single command, `dynconv estimate`, and `shipped_data` another,
    `dynconv train --dry-run`.
    """

    unit: ClassVar[str]
    """the plural noun for its training examples"""
    wrong_task_hint: ClassVar[str]
    """an explanation of what the model is and which commands use it, for the error of a command
    that needs another"""

    def __init__(self, recipe: Recipe):
        self.recipe = recipe

    @abstractmethod
    def loss(self, model: M, batch: Batch) -> Tensor:
        """Return the loss of a batch, summed over its target tokens.

        In eval mode (`model.training` is False) it is the plain cross-entropy, in nats.
        """

    @abstractmethod
    def unpadded_batch(self, ids: Tensor) -> Batch:
        """Return a batch whose targets, and sources if there are any, are these ids (B, T)."""

    @abstractmethod
    def shipped_data(self) -> DataConfig:
        """Return the recipe's `data`, with a shipped corpus of the same kind of text."""

    @abstractmethod
    def training_examples(self, corpus: PreparedCorpus) -> Examples:
        """Return the training examples of a prepared corpus."""

    @abstractmethod
    def encode_split(
        self, corpus: PreparedCorpus, vocabularies: Vocabularies, split: str
    ) -> EncodedSplit:
        """Read and encode a split of a prepared corpus.

        Raises UserError if no example is usable.
        """

    @abstractmethod
    def greedy_outputs(self, model: M, batch: Batch) -> list[list[int]]:
        """Return the greedy output for each row of a batch, as ids; [] if the task has none."""

    @abstractmethod
    def score_outputs(
        self, loss: float, outputs: list[list[int]], split: EncodedSplit, vocabularies: Vocabularies
    ) -> Validation:
        """Return the validation with this loss, in nats per token, and these greedy outputs."""

    def describe_validation(self, validation: Validation) -> str:
        """Return the loss and the score of a validation in one line."""
        loss, score, metric = validation
        return f"validation loss {loss:.3f}, {metric} {score:.2f}"

    def preview(self, model: M, vocabularies: Vocabularies, split: EncodedSplit) -> str:
        """Return the model's output for one example, in one line; "" if there are no outputs."""
        return ""

    @abstractmethod
    def evaluate(self, model: M, vocabularies: Vocabularies, split: str) -> SplitScores:
        """Score a model on a split of the recipe's corpus."""


def require_task(task: Task, kind: type[AnyTask], run: Path) -> AnyTask:
    """Return the task of a run. Raises UserError if it is not of this kind."""
    if not isinstance(task, kind):
        raise UserError(f"{run}: {task.wrong_task_hint}")
    return task
