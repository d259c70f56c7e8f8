"""Trains the many runs of a search or of an experiment, which share one encoded corpus."""

import hashlib
from pathlib import Path
from signal import Signals

from dynconv.config import Recipe
from dynconv.text import is_prepared
from dynconv.text.prepared import find_prepared
from dynconv.train import train
from dynconv.train.not_finite import DivergedError
from dynconv.train.run_corpus import encode_recipe_corpus
from dynconv.train.stopwatch import Stopwatch


def try_training(
    recipe: Recipe, run: Path, watch: Stopwatch | None = None
) -> tuple[Signals | None, bool]:
    """Start or resume training; return the signal that interrupted it, and whether it diverged.

    The encoded corpus is shared with other runs in the parent directory.
    """
    try:
        return train(recipe, run, watch, prepared=shared_corpus(recipe, run.parent)), False
    except DivergedError:
        return None, True


def shared_corpus(recipe: Recipe, folder: Path) -> Path | None:
    """Encode the corpus once for all runs in a folder that use the same vocabulary.

    Returns its directory, or None if the recipe names a prepared corpus.
    """
    data = recipe.data
    if find_prepared(data.corpus):
        return None
    kind = (data.corpus, data.source, data.target, data.vocabulary)
    name = hashlib.sha256(repr((kind, recipe.model.vocab_size)).encode()).hexdigest()
    prepared = folder / f"text-{name[:8]}"
    if not is_prepared(prepared):
        encode_recipe_corpus(recipe, prepared)
    return prepared
