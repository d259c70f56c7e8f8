"""Counts the batches and tokens of one epoch of a recipe's corpus."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np

from dynconv.config import Recipe
from dynconv.tasks import task_of
from dynconv.text import PreparedCorpus, is_prepared, open_prepared
from dynconv.text.corpus import NotPreparedError, corpus_dir
from dynconv.train.data import DataPosition, epoch_pools, iter_batches
from dynconv.train.run_corpus import check_prepared, encode_recipe_corpus


class EpochSize(NamedTuple):
    """The size of one epoch of a corpus, without examples that are too long."""

    examples: int
    batches: int
    target_tokens: int
    mean_length: int
    """tokens of an example's longer side on average, <eos> included"""
    longest: int
    exact: bool
    """whether the count is exact: False if only the first of several pools was counted"""


def measure_epoch(recipe: Recipe) -> EpochSize | None:
    """Return the size of an epoch of the recipe's corpus, or None if its text is not here.

    A text that is here but not encoded is encoded in a temporary directory.
    """
    data = recipe.data
    try:
        directory = corpus_dir(data.corpus)
    except NotPreparedError:
        return None
    if is_prepared(directory):
        return count_epoch(open_prepared(directory, verify=False), recipe)
    with TemporaryDirectory() as folder:
        return count_epoch(encode_recipe_corpus(recipe, Path(folder) / "prepared"), recipe)


def count_epoch(corpus: PreparedCorpus, recipe: Recipe) -> EpochSize:
    """Count the batches of the first epoch; if it has several pools, extrapolate from the first."""
    check_prepared(corpus, recipe)
    config, batches = recipe.train, []
    examples = task_of(recipe).training_examples(corpus)
    for indices, before, _ in iter_batches(examples, recipe.example_limit, config, DataPosition()):
        if before >= DataPosition(epoch=0, pool=1):
            break
        batches.append(indices)
    lengths = examples.lengths(np.concatenate(batches))
    pools = len(epoch_pools(len(examples), config.seed, 0))
    return EpochSize(
        examples=len(lengths) * pools,
        batches=len(batches) * pools,
        target_tokens=int(lengths[:, 1].sum()) * pools,
        mean_length=round(lengths.max(1).mean()),
        longest=int(lengths.max()),
        exact=pools == 1,
    )
