"""Trains and scores one row of an experiment with one seed; results are in RUN/results.json."""

import json
import math
from pathlib import Path
from signal import Signals
from typing import Any, Literal, NamedTuple

from typing_extensions import TypedDict

from dynconv.config import Recipe
from dynconv.files import path_inside, read_json, replace_text
from dynconv.lab.many_runs import try_training
from dynconv.schema import NonNegative, Number, PositiveInt, validated_content
from dynconv.text.corpus import corpus_dir, require_split
from dynconv.train import load_model
from dynconv.train.run_directory import match_recorded_recipe, read_recipe, read_starts
from dynconv.train.stopwatch import Stopwatch

RESULTS = "results.json"
OLD_RESULTS = "ablation.json"
"""the name in runs of version 0.1, which is still read"""
DIVERGES = "diverges"
"""the score of a run whose loss or score is not finite"""
SPLIT = "test"
"""the split that is scored"""


class Results(TypedDict, total=False):
    """The content of results.json: see `Run.results`."""

    starts: list[NonNegative]
    score: Number | Literal["diverges"]
    metrics: dict[str, Number]
    valid_loss: Number | None
    seconds: NonNegative | None
    precision: str
    threads: PositiveInt


class Run(NamedTuple):
    """One row of an experiment with one seed."""

    row: str
    seed: int
    recipe: Recipe
    directory: Path

    @property
    def results(self) -> Results:
        """The results so far; {} until the first start has ended.

        starts      training seconds of each start that was not killed
        score       the recipe's metric on the test split, or DIVERGES; missing: not finished
        metrics     all scores by name
        valid_loss  nats per token of the checkpoint that was scored
        seconds     training seconds of all starts; None if a start was killed
        precision   the precision of training
        threads     the threads of the last start
        """
        new, old = self.directory / RESULTS, self.directory / OLD_RESULTS
        path = old if old.exists() and not new.exists() else new
        remedy = "remove it, and the row is scored again"
        if not path.exists():
            return {}
        return validated_content(Results, read_json(path, remedy), path, remedy)

    @property
    def finished(self) -> bool:
        """Whether the run has a score. Raises UserError if another recipe produced it."""
        if "score" not in self.results:
            return False
        match_recorded_recipe(
            self.recipe, self.directory, ignored=("published", "profile", "train.timeout")
        )
        return True

    def train_and_score(self) -> Signals | None:
        """Start or resume training, then score; return the signal that interrupted it, if any."""
        results = self.results
        watch = Stopwatch()
        signal, diverged = try_training(self.recipe, self.directory, watch)
        if diverged:
            results["score"] = DIVERGES
        results["starts"] = [*results.get("starts", []), watch.training_seconds]
        if signal is None:
            results |= self._conditions(results["starts"])
        self._write(results)
        if signal is None and "score" not in results:
            self._write(results | self._evaluate())
        return signal

    def check_split(self) -> None:
        """Raise UserError if the text that scores the run is missing."""
        data = self.recipe.data
        for suffix in data.suffixes:
            require_split(corpus_dir(data.corpus), f"{SPLIT}.{suffix}")

    def _write(self, results: dict[str, Any]) -> None:
        replace_text(path_inside(self.directory, RESULTS), json.dumps(results, indent=1))

    def _evaluate(self) -> dict[str, Any]:
        trained = load_model(self.directory)
        loss = trained.checkpoint.meta["loss"]
        if not math.isfinite(loss):
            return {"score": DIVERGES, "valid_loss": None}
        first, *others = trained.evaluate(SPLIT).record["scores"]
        metrics = {m["metric"]: m["value"] for m in (first, *others) if math.isfinite(m["value"])}
        return {
            "score": metrics.get(first["metric"], DIVERGES),
            "metrics": metrics,
            "valid_loss": loss,
        }

    def _conditions(self, starts: list[float]) -> dict[str, Any]:
        resolved = read_recipe(self.directory)
        # environment.json lists every start, killed or not.
        environments = read_starts(self.directory)
        return {
            "seconds": sum(starts) if len(starts) == len(environments) else None,
            "precision": resolved.train.precision,
            "threads": environments[-1]["threads"] if environments else None,
        }
