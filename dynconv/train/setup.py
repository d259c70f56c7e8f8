"""Preparation of a run directory, which has everything to resume, use or reproduce a run.

.dynconv            the mark that the directory is a run's: files of no other are replaced
recipe.yaml         the resolved recipe
vocabulary.json     the vocabulary, or both
data/               the training text, prepared, unless the recipe names a prepared corpus
environment.json    versions, commit and device, a list with one entry for each start
log.jsonl           one line per event; tensorboard/ has the same curves
checkpoints/        see `dynconv.train.checkpoint`
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch

from dynconv.config import Recipe
from dynconv.config.load import MAY_CHANGE, differences
from dynconv.decode.unknown import read_dictionary
from dynconv.errors import UserError, memory_error
from dynconv.files import (
    LOCK,
    MARK,
    claim,
    inside,
    is_claimed,
    locked,
    replace_bytes,
    scratch_folder,
)
from dynconv.models import build
from dynconv.tasks import HeldOut, task_of
from dynconv.text import Prepared, Vocabularies, is_prepared, open_prepared, prepare
from dynconv.text.prepared import foreign_files
from dynconv.train.checkpoint import Checkpoints
from dynconv.train.distributed import Ranks
from dynconv.train.environment import read_recipe, record_start
from dynconv.train.legacy import is_unmarked_run
from dynconv.train.precision import choose_precision
from dynconv.train.resume import check_vocabulary, restore
from dynconv.train.session import Session
from dynconv.train.update import TokenLoss, make_optimizer


@contextmanager
def run_lock(run: Path, ranks: Ranks) -> Iterator[None]:
    """Keep other training processes out of a run directory.

    It is made if it is missing, and deleted when training fails before anything is in it.
    """
    if not ranks.is_rank_zero:
        yield
        return
    made = not run.exists()
    run.mkdir(parents=True, exist_ok=True)
    message = f"{run}: another process is training in it"
    try:
        with locked(run / LOCK, message, "end it, or name another --run"):
            yield
    except Exception:
        if run.is_dir() and os.listdir(run) == [MARK]:
            (run / MARK).unlink()
        if made and run.is_dir() and not os.listdir(run):
            run.rmdir()
        raise


@contextmanager
def explain_out_of_memory(recipe: Recipe) -> Iterator[None]:
    """Turn an error of full memory into a UserError that names the remedy."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not (reason := memory_error(error)):
            raise
        raise UserError(
            f"{reason}: lower train.batch_tokens (now "
            f"{recipe.train.batch_tokens}) and raise train.accumulate as much"
        ) from None


def open_session(recipe: Recipe, run: Path, ranks: Ranks, prepared: Path | None = None) -> Session:
    """Get everything ready for the next update: the first one, or that after the last checkpoint.

    Raises UserError when the directory holds the run of another recipe, the text has changed, or,
    on every rank, when one of them has or sees something else than rank 0.
    """
    ranks.agree(recipe, lambda ours, theirs: "; ".join(differences(theirs, ours, ())))
    if recipe.decode.dictionary:  # a mistake in it must not wait until after training
        read_dictionary(Path(recipe.decode.dictionary))
    recipe = ranks.on_rank_zero(lambda: prepare_run(run, recipe, prepared))
    corpus = open_corpus(run, recipe, ranks)
    task = task_of(recipe)
    vocabularies = Vocabularies.load(run / "vocabulary.json")
    valid = task.held_out(corpus, vocabularies, "valid")
    examples = task.training_examples(corpus)
    torch.manual_seed(recipe.train.seed)
    model = build(recipe.model).to(ranks.device)
    check_lengths(valid, model.max_positions)
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
        valid=valid,
        model=model,
        loss_of=TokenLoss(model, task, recipe.train.precision),
        optimizer=optimizer,
        scaler=scaler,
    )
    ranks.on_rank_zero(lambda: record_start(session))
    restore(session)
    session.loss_of = ranks.wrap(session.loss_of)  # which sends the weights of rank 0 to the others
    return session


def prepare_run(run: Path, recipe: Recipe, prepared: Path | None = None) -> Recipe:
    """Prepare text and vocabulary of a new run, or check that an old one has the same recipe.

    The text is copied from `prepared`, where that is given. Raises UserError when the directory is
    none that a run may use: neither new, nor empty, nor a run's.
    """
    if not is_run(run):
        claim(run, "name another --run")
    if Checkpoints(run).paths:
        return check_same_recipe(recipe, run)
    text = prepared_dir(run, recipe)
    if not is_prepared(Path(recipe.data.corpus)):
        with scratch_folder(inside(run, ".part")) as scratch:
            if text.exists():  # of a start that ended before its first checkpoint
                if others := foreign_files(text):
                    raise UserError(f"{text / others[0]}: not made by dynconv: name another --run")
                inside(run, "data").rename(scratch / "old")
            if prepared is None:
                prepare_corpus(recipe, inside(run, "data"))
            else:
                shutil.copytree(prepared, scratch / "new")
                (scratch / "new").rename(inside(run, "data"))
    check_text(open_prepared(text, verify=False), recipe)
    vocabulary = (text / "vocabulary.json").read_bytes()
    replace_bytes(inside(run, "vocabulary.json"), vocabulary)
    return recipe


def is_run(directory: Path) -> bool:
    """Return whether a directory is that of a run, so that its files may be replaced."""
    return is_claimed(directory) or is_unmarked_run(directory)


def check_same_recipe(recipe: Recipe, run: Path, free: tuple[str, ...] = MAY_CHANGE) -> Recipe:
    """Return the recipe with the precision that was decided when the run began.

    Raises UserError when the run has another recipe, in keys that do not begin with one of `free`.
    """
    recorded = read_recipe(run)
    if recipe.train.precision == "auto":
        recipe = with_precision(recipe, recorded.train.precision)
    if changed := differences(recipe, recorded, free):
        raise UserError(
            f"{run} holds the run of another recipe ({'; '.join(changed)}): name another "
            f"--run, give the same values, or put the new ones also into {run / 'recipe.yaml'}"
        )
    return recipe


def with_precision(recipe: Recipe, precision: str) -> Recipe:
    """Return the recipe with its train.precision decided."""
    return replace(recipe, train=replace(recipe.train, precision=precision))


def prepare_corpus(recipe: Recipe, out: Path) -> Prepared:
    """Encode the recipe's corpus, which is text, into a directory."""
    data = recipe.data
    size = recipe.model.vocab_size
    return prepare(data.corpus, data.source, data.target, size, out, data.vocabulary)


def prepared_dir(run: Path, recipe: Recipe) -> Path:
    """Return where the prepared text is: the recipe's corpus, or the run's own copy of it."""
    corpus = Path(recipe.data.corpus)
    return corpus if is_prepared(corpus) else run / "data"


def open_corpus(run: Path, recipe: Recipe, ranks: Ranks) -> Prepared:
    """Open the prepared text of a run and check that all ranks see the same."""
    if not ranks.is_rank_zero and not (run / "vocabulary.json").exists():
        raise UserError(
            f"{run}: this process does not see the run directory of process 0: "
            "give a --run on a file system that all machines share"
        )
    corpus = open_prepared(prepared_dir(run, recipe), verify=ranks.local == 0)
    ranks.agree(
        corpus.files,
        lambda ours, theirs: (
            f"the text in {corpus.directory} has another "
            f"{'vocabulary' if ours['vocabulary.json'] != theirs['vocabulary.json'] else 'content'}"
        ),
    )
    check_vocabulary(corpus.directory, corpus.files["vocabulary.json"]["sha256"], run)
    return corpus


def check_text(corpus: Prepared, recipe: Recipe) -> None:
    """Raise UserError when a prepared corpus is not what the recipe asks for."""
    data = recipe.data
    for key, prepared, requested in (
        ("data.source", corpus.source, data.source),
        ("data.target", corpus.target, data.target),
        ("data.vocabulary", corpus.kind, data.vocabulary),
        ("model.vocab_size", corpus.vocab_size, recipe.model.vocab_size),
    ):
        if prepared != requested:
            raise UserError(
                f"{corpus.directory}: prepared with {key}={prepared or 'null'}, but the recipe has "
                f"{requested or 'null'}: give {key}={prepared or 'null'}, or prepare it again"
            )


def check_lengths(valid: HeldOut, max_positions: int | None) -> None:
    """Raise UserError when validation needs more positions than that; None: no limit."""
    longest = int(valid.examples.lengths(range(len(valid.examples))).max())
    if max_positions is not None and longest > max_positions:
        raise UserError(
            f"split valid has a line of {longest} tokens, <eos> included, and model.max_positions "
            f"is {max_positions}: raise it, or shorten the line"
        )
