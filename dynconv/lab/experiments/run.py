"""One run of an experiment: a row with a seed. RUN/ablation.json has what came of it."""

import hashlib
import json
import math
from pathlib import Path
from signal import Signals
from typing import Any, NamedTuple

from dynconv.config import Recipe, load_recipe
from dynconv.config.files import replace_text
from dynconv.errors import UserError
from dynconv.text import is_prepared
from dynconv.train import load_model, train
from dynconv.train.log import Watch
from dynconv.train.setup import prepare_for, same_recipe

DIVERGES = "diverges"
SPLIT = "test"


class Run(NamedTuple):
    """A row with a seed: its recipe, and its directory."""

    row: str
    seed: int
    recipe: Recipe
    directory: Path

    @property
    def found(self) -> dict[str, Any]:
        """What is known; nothing before the first start has ended.

        starts      seconds of updates, of each start that was not killed
        score       the recipe's metric on the test split, or DIVERGES; missing: not finished
        metrics     that and its companions by name: BLEU and chrF2, perplexity a word and a token
        valid_loss  nats a token of the checkpoint that was scored
        seconds     of updates in all; None when a start was killed
        precision   of the updates
        threads     of the last start
        """
        path = self.directory / "ablation.json"
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}

    @property
    def finished(self) -> bool:
        """Whether there is a score. Raises UserError when it is that of another recipe."""
        if "score" not in self.found:
            return False
        same_recipe(self.recipe, self.directory, free=("published", "profile", "train.timeout"))
        return True

    def finish(self) -> Signals | None:
        """Train from wherever it stands, and score; the signal that ended training early."""
        found, watch, ended = self.found, Watch(), None
        try:
            ended = train(self.recipe, self.directory, watch, prepared=self._prepare())
        except UserError:
            if not any(self.directory.glob("not-finite-*.json")):
                raise
            found["score"] = DIVERGES
        found["starts"] = [*found.get("starts", []), watch.training]
        if ended is None:
            found |= self._conditions(found["starts"])
        self._keep(found)
        if ended is None and "score" not in found:
            self._keep(found | self._evaluate())
        return ended

    def _prepare(self) -> Path | None:
        """Encode the corpus once for all runs of the experiment that read it alike.

        Returns where it is; None where the recipe's corpus is encoded already.
        """
        data = self.recipe.data
        if is_prepared(Path(data.corpus)):
            return None
        kind = (data.corpus, data.source, data.target, data.vocabulary)
        name = hashlib.sha256(repr((kind, self.recipe.model.vocab_size)).encode()).hexdigest()
        prepared = self.directory.parent / f"text-{name[:8]}"
        if not is_prepared(prepared):
            prepare_for(self.recipe, prepared)
        return prepared

    def _keep(self, found: dict[str, Any]) -> None:
        replace_text(self.directory / "ablation.json", json.dumps(found, indent=1))

    def _evaluate(self) -> dict[str, Any]:
        trained = load_model(self.directory)
        loss = trained.checkpoint.meta["loss"]
        if not math.isfinite(loss):
            return {"score": DIVERGES, "valid_loss": None}
        first, *others = trained.evaluate(SPLIT).numbers["scores"]
        metrics = {m["metric"]: m["value"] for m in (first, *others) if math.isfinite(m["value"])}
        return {
            "score": metrics.get(first["metric"], DIVERGES),
            "metrics": metrics,
            "valid_loss": loss,
        }

    def _conditions(self, starts: list[float]) -> dict[str, Any]:
        there = load_recipe(self.directory / "recipe.yaml")
        # every start of the training, killed or not
        known = json.loads((self.directory / "environment.json").read_text(encoding="utf-8"))
        return {
            "seconds": sum(starts) if len(starts) == len(known) else None,
            "precision": there.train.precision,
            "threads": known[-1]["threads"],
        }
