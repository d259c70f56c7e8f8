"""Prepares a run directory and everything else that training needs before its first update."""

import shutil
from pathlib import Path

import torch

from dynconv.config import Recipe
from dynconv.config.load import list_differences
from dynconv.decode.unknown import read_dictionary
from dynconv.errors import UserError
from dynconv.files import (
    claim,
    disk_errors,
    path_inside,
    replace_bytes,
    scratch_folder,
)
from dynconv.models import build
from dynconv.models.activation_checkpointing import set_activation_checkpointing
from dynconv.tasks import EncodedSplit, task_of
from dynconv.text import PreparedCorpus, encode_corpus, open_prepared
from dynconv.text.prepared import VOCABULARY, find_prepared, foreign_files
from dynconv.train.checkpoint_store import CheckpointStore
from dynconv.train.data import count_too_long
from dynconv.train.distributed import Ranks
from dynconv.train.precision import choose_precision
from dynconv.train.restoring import restore
from dynconv.train.run_directory import (
    DATA,
    check_vocabulary,
    is_run,
    match_recorded_recipe,
    prepared_dir,
    record_start,
    with_precision,
)
from dynconv.train.session import Session
from dynconv.train.stopwatch import Stopwatch
from dynconv.train.update import BatchLoss, make_optimizer
from dynconv.yaml12 import as_override


def open_session(
    recipe: Recipe, run: Path, ranks: Ranks, watch: Stopwatch, prepared: Path | None = None
) -> Session:
    """Return a session that is ready for its first update, or for the one after its checkpoint.

    Raises UserError if the directory contains the run of another recipe or the text has changed;
    also, on every rank, if the recipe or the text of any rank differs from rank 0's.
    """
    ranks.check_agreement(recipe, lambda ours, theirs: "; ".join(list_differences(theirs, ours)))
    if recipe.decode.replace_unknown and recipe.decode.dictionary:
        read_dictionary(Path(recipe.decode.dictionary))  # reports a mistake before training
    recipe = ranks.on_rank_zero(lambda: prepare_run(run, recipe, prepared))
    corpus = open_corpus(run, recipe, ranks)
    task = task_of(recipe)
    vocabularies = corpus.vocabularies()
    validation_split = task.encode_split(corpus, vocabularies, "valid")
    examples = task.training_examples(corpus)
    too_long = ranks.on_rank_zero(lambda: count_too_long(examples, recipe.longest_example))
    torch.manual_seed(recipe.train.seed)
    model = build(recipe.model).to(ranks.device)
    set_activation_checkpointing(model, recipe.train.checkpoint_activations)
    check_positions(validation_split, model.max_positions)
    if recipe.train.precision == "auto":
        choice = ranks.on_rank_zero(lambda: choose_precision(model, task, examples, ranks.device))
        recipe = with_precision(recipe, choice)
    optimizer, scaler = make_optimizer(model, recipe.train, ranks.device)
    session = Session(
        run=run,
        recipe=recipe,
        task=task,
        ranks=ranks,
        vocabularies=vocabularies,
        corpus=corpus,
        examples=examples,
        too_long=too_long,
        validation_split=validation_split,
        model=model,
        loss_module=BatchLoss(model, task, recipe.train.precision),
        optimizer=optimizer,
        scaler=scaler,
        watch=watch,
    )
    restore(session)
    ranks.on_rank_zero(lambda: record_start(run, recipe, ranks, len(examples), too_long))
    session.loss_module = ranks.wrap(session.loss_module)  # broadcasts the weights of rank 0
    return session


def prepare_run(run: Path, recipe: Recipe, prepared: Path | None = None) -> Recipe:
    """Prepare text and vocabulary of a new run, or check that an old one has the same recipe.

    The text is copied from `prepared` if that is given. Raises UserError if the directory is not
    new, empty or a run directory.
    """
    if not is_run(run):
        claim(run, "name another run directory (--run)")
    if CheckpointStore(run).list_paths():
        return match_recorded_recipe(recipe, run)
    text = prepared_dir(run, recipe)
    if find_prepared(recipe.data.corpus) is None:
        part = path_inside(run, ".part")
        remedy = "name another run directory (--run)"
        with disk_errors(run, remedy), scratch_folder(part) as scratch:
            if text.exists():  # left by a start that ended before its first checkpoint
                if others := foreign_files(text):
                    raise UserError(f"{others[0]}: not made by dynconv: {remedy}")
                path_inside(run, DATA).rename(scratch / "old")
            if prepared is None:
                encode_recipe_corpus(recipe, path_inside(run, DATA))
            else:
                shutil.copytree(prepared, scratch / "new")
                (scratch / "new").rename(path_inside(run, DATA))
    check_text(open_prepared(text, verify=False), recipe)
    vocabulary = (text / VOCABULARY).read_bytes()
    replace_bytes(path_inside(run, VOCABULARY), vocabulary)
    return recipe


def encode_recipe_corpus(recipe: Recipe, out: Path) -> PreparedCorpus:
    """Encode the text of the recipe's corpus into a directory."""
    data = recipe.data
    size = recipe.model.vocab_size
    return encode_corpus(data.corpus, data.source, data.target, size, out, data.vocabulary)


def open_corpus(run: Path, recipe: Recipe, ranks: Ranks) -> PreparedCorpus:
    """Open the encoded text of a run and check that all ranks read the same."""
    if not ranks.is_rank_zero and not (run / VOCABULARY).exists():
        raise UserError(
            f"{run}: this process does not see the run directory of process 0: "
            "give a --run on a file system that all machines share"
        )
    corpus = open_prepared(prepared_dir(run, recipe), verify=ranks.local_rank == 0)

    def difference(ours: dict, theirs: dict) -> str:
        what = "vocabulary" if ours[VOCABULARY] != theirs[VOCABULARY] else "content"
        return f"the text in {corpus.directory} has another {what}"

    ranks.check_agreement(corpus.files, difference)
    check_vocabulary(corpus.directory, corpus.files[VOCABULARY]["sha256"], run)
    return corpus


def check_text(corpus: PreparedCorpus, recipe: Recipe) -> None:
    """Raise UserError if a prepared corpus is not what the recipe asks for."""
    data = recipe.data
    for key, prepared, requested in (
        ("data.source", corpus.source, data.source),
        ("data.target", corpus.target, data.target),
        ("data.vocabulary", corpus.kind, data.vocabulary),
        ("model.vocab_size", corpus.vocab_size, recipe.model.vocab_size),
    ):
        if prepared != requested:
            known, asked = as_override(prepared), as_override(requested)
            raise UserError(
                f"{corpus.directory}: prepared with {key}={known}, but the recipe has "
                f"{asked}: give {key}={known}, or prepare it again"
            )


def check_positions(validation_split: EncodedSplit, max_positions: int | None) -> None:
    """Raise UserError if a validation example exceeds `max_positions`; None means no limit."""
    examples = validation_split.examples
    longest = int(examples.lengths(range(len(examples))).max())
    if max_positions is not None and longest > max_positions:
        raise UserError(
            f"split valid has a line of {longest} tokens, <eos> included, and model.max_positions "
            f"is {max_positions}: raise it, or shorten the line"
        )
