"""Loads a trained model from a run directory, and evaluates it."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, cast

from torch import nn

from dynconv.config import Recipe, load_recipe
from dynconv.config.load import override_keys
from dynconv.errors import UserError, quoted
from dynconv.files import check_writable, path_inside, replace_text
from dynconv.machine import default_device
from dynconv.models import LanguageModel, Translator, build
from dynconv.tasks import LanguageModeling, SplitScores, Task, Translation, task_of
from dynconv.tasks.task import require_task
from dynconv.text import Vocabularies, is_prepared, open_prepared
from dynconv.text.corpus import corpus_dir
from dynconv.text.prepared import TOKENS, VOCABULARY
from dynconv.train.checkpoint import Checkpoint
from dynconv.train.checkpoint_store import CheckpointStore
from dynconv.train.run_corpus import check_vocabulary
from dynconv.train.run_directory import DATA, OUTPUTS, RECIPE, SCORES, read_recipe
from dynconv.train.weights import load_weights


@dataclass(frozen=True, kw_only=True)
class Evaluation(SplitScores):
    """The scores of a checkpoint on a split, and what was evaluated on what."""

    corpus: str
    split: str
    checkpoint: str

    @property
    def summary(self) -> str:
        """What was scored, how long it took, and the settings, in one line."""
        return (
            f"{self.amount_in_words} of split {self.split} in {self.seconds:.0f} s: "
            f"{self.settings_in_words}, checkpoint {self.checkpoint}"
        )

    @property
    def record(self) -> dict[str, Any]:
        """The content of SPLIT.scores.json."""
        return {
            "corpus": self.corpus,
            "split": self.split,
            "checkpoint": self.checkpoint,
            **self.settings,
            "seconds": round(self.seconds, 1),
            "scores": [record for score in self.scores for record in score.records()],
        }


class TrainedModel(NamedTuple):
    """A trained model with its recipe, vocabularies and checkpoint."""

    recipe: Recipe
    vocabularies: Vocabularies
    model: nn.Module
    checkpoint: Checkpoint

    @property
    def task(self) -> Task:
        return task_of(self.recipe)

    def translate(self, lines: Sequence[str], **options: Any) -> list[str]:
        """Return one translation per line; `Translation.translate` has the options."""
        task = require_task(self.task, Translation, self.checkpoint.run)
        model = cast(Translator, self.model)
        return task.translate(model, self.vocabularies, lines, **options)

    def continue_text(self, text: str, **options: Any) -> list[str]:
        """Return sampled continuations of a text; `dynconv.decode.sample` has the options."""
        task = require_task(self.task, LanguageModeling, self.checkpoint.run)
        model = cast(LanguageModel, self.model)
        return task.continue_text(model, self.vocabularies, text, **options)

    def evaluate(self, split: str, corpus: str | None = None) -> Evaluation:
        """Score the model on a split of its corpus, or of another text in the same languages.

        Writes RUN/SPLIT.scores.json and, for a translator, RUN/SPLIT.hypotheses.txt.
        """
        recipe, run = self.recipe, self.checkpoint.run
        if not split.strip(".") or Path(split).name != split:
            raise UserError(f"{quoted(split)} is not a split: name one, such as test or valid")
        text = str(self.text_directory()) if corpus is None else corpus
        data = replace(recipe.data, corpus=text)
        task = task_of(replace(recipe, data=data))
        scores, outputs = (path_inside(run, n.format(split=split)) for n in (SCORES, OUTPUTS))
        for path in (scores, outputs):
            check_writable(path, f"allow it by chmod u+w {run}, or evaluate a copy of the run")
        result = task.evaluate(self.model, self.vocabularies, split)
        name = recipe.data.corpus if corpus is None else corpus
        evaluation = Evaluation(
            **vars(result), corpus=name, split=split, checkpoint=self.checkpoint.path.name
        )
        if evaluation.outputs:
            lines = "".join(f"{line}\n" for line in evaluation.outputs)
            replace_text(outputs, lines)
        replace_text(scores, json.dumps(evaluation.record, indent=1))
        return evaluation

    def text_directory(self) -> Path:
        """Return the directory of the run's text: its own copy, or the prepared corpus it read.

        Raises UserError if the text has changed, or a relative path now leads to another one.
        """
        copy = self.checkpoint.run / DATA
        if is_prepared(copy):
            return copy
        directory = corpus_dir(self.recipe.data.corpus)
        if is_prepared(directory):
            files = open_prepared(directory, verify=False).files
            if files[TOKENS]["sha256"] != self.checkpoint.meta["text"]:
                raise UserError(
                    f"{directory.absolute()}: not the text with which {self.checkpoint.path} was "
                    "trained: call dynconv from the directory to which the recipe's data.corpus is "
                    "relative, or name the corpus"
                )
        return directory


def load_model(
    run: Path | str, checkpoint: str = "best", overrides: Sequence[str] = ()
) -> TrainedModel:
    """Load a run's model in eval mode.

    checkpoint  whose weights it gets: best, last or a name
    overrides   key=value for entries of `decode`, which alone may differ from the run's recipe

    Raises UserError if a file is missing or damaged, or belongs to another recipe, and for an
    override of another entry or without effect.
    """
    if run == "":
        raise UserError("'' names no run directory: give the path of one")
    run = Path(run)
    if not (run / RECIPE).exists():
        raise UserError(f"{run}: no run directory (it has no recipe.yaml)")
    recipe = read_recipe(run)
    if overrides:
        check_decode_entries(overrides)
        recipe = load_recipe(run / RECIPE, overrides)
    vocabularies = Vocabularies.load(run / VOCABULARY)
    chosen = CheckpointStore(run).choose(checkpoint)
    check_vocabulary(chosen.path, chosen.meta["vocabulary"], run)
    model = build(recipe.model).to(default_device())
    load_weights(model, chosen.read_weights(), chosen.path)
    return TrainedModel(recipe, vocabularies, model.eval(), chosen)


def check_decode_entries(overrides: Sequence[str]) -> None:
    """Raise UserError if an override replaces anything but an entry of `decode`."""
    for key in sorted(override_keys(overrides)):
        if not key.startswith("decode."):
            raise UserError(
                f"{key} was fixed when the model was trained: leave it out, or train another model "
                "with it; only entries of decode may change, such as decode.beam=4"
            )
