"""The run directory: everything that is needed to resume and to reproduce a run.

recipe.yaml         the resolved recipe
vocabulary.json     the vocabulary, or both
data/               the training text, prepared, unless the recipe names a prepared corpus
environment.json    versions, commit and device, a list with one entry for each start
log.jsonl           one line an event; tensorboard/ has the same curves
checkpoints/        see `dynconv.train.checkpoint`
"""

import json
import os
import platform
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import torch
from torch import nn

from dynconv.config import Recipe
from dynconv.config import load as recipes
from dynconv.config.files import locked, replace_text, sha256
from dynconv.errors import UserError
from dynconv.lab import ledger
from dynconv.models import build
from dynconv.text import Prepared, Vocabularies, is_prepared, open_prepared, prepare
from dynconv.train import checkpoint as checkpoints
from dynconv.train.checkpoint import Checkpoint
from dynconv.train.ranks import Ranks, default_device


@contextmanager
def alone(run: Path, ranks: Ranks) -> Iterator[None]:
    """Keep other trainings out of a run directory; it goes again when nothing has begun in it."""
    if not ranks.first:
        yield
        return
    made = not run.exists()
    run.mkdir(parents=True, exist_ok=True)
    told = f"{run}: another training runs in it"
    try:
        with locked(run / ".lock", told, "end it, or name another --run"):
            yield
    except UserError:
        if made and not os.listdir(run):
            run.rmdir()
        raise


def open_run(run: Path, recipe: Recipe, ranks: Ranks) -> tuple[Recipe, Prepared]:
    """The recipe and the prepared text to train with: new ones, or those of the run to go on with.

    Raises UserError when the directory holds the run of another recipe, or the text has changed, on
    every rank when one of them has or sees something else than rank 0.
    """
    ranks.agree(recipe, lambda ours, theirs: "; ".join(recipes.differences(theirs, ours, ())))
    recipe = ranks.once(lambda: ready(run, recipe))
    if not ranks.first and not (run / "vocabulary.json").exists():
        raise UserError(
            f"{run}: this process does not see the run directory of process 0: "
            "give a --run on a file system that all machines share"
        )
    corpus = open_prepared(text_of(run, recipe), verify=ranks.local == 0)
    ranks.agree(
        corpus.files,
        lambda ours, theirs: (
            f"the text in {corpus.directory} has another "
            f"{'vocabulary' if ours['vocabulary.json'] != theirs['vocabulary.json'] else 'content'}"
        ),
    )
    if corpus.files["vocabulary.json"]["sha256"] != vocabulary_hash(run):
        raise UserError(
            f"{corpus.directory}: prepared with another vocabulary than {run} was trained with"
        )
    return recipe, corpus


def ready(run: Path, recipe: Recipe) -> Recipe:
    """Make a run directory ready, or check that the one that is there is of the same recipe."""
    if checkpoints.directories(run):
        there = recipe_of(run)
        if recipe.train.precision == "auto":  # it was decided when the run began
            recipe = with_precision(recipe, there.train.precision)
        if changed := recipes.differences(recipe, there):
            raise UserError(
                f"{run} holds the run of another recipe ({'; '.join(changed)}): name another "
                f"--run, give the same values, or put the new ones into {run / 'recipe.yaml'}, too"
            )
        return recipe
    data, own, text = recipe.data, run / "recipe.yaml", run / "data"
    if not is_prepared(Path(data.corpus)):
        if text.exists() and not own.exists():
            raise UserError(f"{text} is there, and is not a run's: name another --run")
        shutil.rmtree(text, ignore_errors=True)  # of this run, perhaps of another text
        replace_text(own, recipes.dump(recipe))  # from now on data/ is ours
        try:
            prepare_for(recipe, text)
        except UserError:
            own.unlink()
            raise
    check_text(open_prepared(text_of(run, recipe), verify=False), recipe)
    shutil.copyfile(text_of(run, recipe) / "vocabulary.json", run / "vocabulary.json")
    return recipe


def recipe_of(run: Path) -> Recipe:
    """The resolved recipe of a run."""
    try:
        return recipes.load(run / "recipe.yaml")
    except UserError as error:
        raise UserError(f"{error}; if another version made this run, name another --run") from None


def prepare_for(recipe: Recipe, out: Path) -> Prepared:
    """Encode the recipe's corpus, which is text, into a directory."""
    data = recipe.data
    size = recipe.model.vocab_size
    return prepare(data.corpus, data.source, data.target, size, out, data.vocabulary)


def text_of(run: Path, recipe: Recipe) -> Path:
    """Where the prepared text is: the recipe's corpus, or what was made of it for this run."""
    corpus = Path(recipe.data.corpus)
    return corpus if is_prepared(corpus) else run / "data"


def check_text(corpus: Prepared, recipe: Recipe) -> None:
    """UserError when a prepared corpus is not what the recipe asks for."""
    data, vocab_size = recipe.data, recipe.model.vocab_size
    if (corpus.source, corpus.target) != (data.source, data.target):
        raise UserError(
            f"{corpus.directory}: prepared for {corpus.source}-{corpus.target}, "
            f"the recipe has {data.source}-{data.target}: change data.source and data.target"
        )
    if corpus.kind != data.vocabulary:
        raise UserError(
            f"{corpus.directory}: prepared with a vocabulary of {corpus.kind}, the recipe has "
            f"{data.vocabulary}: give data.vocabulary={corpus.kind}, or prepare it again"
        )
    if corpus.vocab_size != vocab_size:
        raise UserError(
            f"{corpus.directory}: prepared with {corpus.vocab_size} types, the recipe has "
            f"{vocab_size}: give model.vocab_size={corpus.vocab_size}, or prepare it again"
        )


def with_precision(recipe: Recipe, precision: str) -> Recipe:
    """The recipe with its train.precision decided."""
    return replace(recipe, train=replace(recipe.train, precision=precision))


def record(run: Path, recipe: Recipe, ranks: Ranks) -> None:
    """Write the resolved recipe, and add this start to environment.json."""
    replace_text(run / "recipe.yaml", recipes.dump(recipe))
    path = run / "environment.json"
    cuda = ranks.device.type == "cuda"
    start = {
        "python": platform.python_version(),
        **{name: metadata.version(name) for name in ("dynconv", "torch", "tokenizers", "numpy")},
        "commit": ledger.commit(),
        "device": torch.cuda.get_device_name(ranks.device) if cuda else ledger.processor(),
        "threads": torch.get_num_threads(),
        "processes": ranks.size,
    }
    starts = []
    with suppress(OSError, ValueError):  # there is none, or a crash has spoiled it
        starts = json.loads(path.read_text(encoding="utf-8"))
    replace_text(path, json.dumps([*starts, start], indent=1))


class Trained(NamedTuple):
    """What a run directory gives to those who use its model."""

    recipe: Recipe
    vocabularies: Vocabularies
    model: nn.Module
    checkpoint: Checkpoint


def load_model(run: Path, which: str = "best") -> Trained:
    """A run's model in eval mode, with the weights of a checkpoint: "best", "last" or a name.

    Raises UserError when a file is missing, truncated, foreign or of another recipe.
    """
    if not (run / "recipe.yaml").exists():
        raise UserError(f"{run}: no run directory (it has no recipe.yaml)")
    recipe = recipe_of(run)
    vocabularies = Vocabularies.load(run / "vocabulary.json")
    checkpoint = checkpoints.choose(run, which)
    checkpoints.check_vocabulary(checkpoint, vocabulary_hash(run))
    model = build(recipe.model).to(default_device())
    checkpoints.fill(model, checkpoints.load_weights(checkpoint), checkpoint.path)
    return Trained(recipe, vocabularies, model.eval(), checkpoint)


def vocabulary_hash(run: Path) -> str:
    """sha256 of vocabulary.json: weights mean nothing with another vocabulary."""
    return sha256(run / "vocabulary.json")
