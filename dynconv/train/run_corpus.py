"""Encodes or opens the text that a run trains on, and checks that it fits the recipe."""

import shutil
from pathlib import Path

from dynconv.config import Recipe
from dynconv.errors import UserError
from dynconv.files import disk_errors, path_inside, replace_bytes, scratch_folder, sha256
from dynconv.text import PreparedCorpus, encode_corpus, open_prepared
from dynconv.text.prepared import VOCABULARY, find_prepared, foreign_files
from dynconv.train.distributed import World
from dynconv.train.run_directory import DATA
from dynconv.yaml12 import as_override


def prepare_run_corpus(run: Path, recipe: Recipe, prepared: Path | None = None) -> None:
    """Prepare text and vocabulary of a new run.

    The text is encoded, or copied from `prepared` if that is given. If the recipe names a prepared
    corpus, the run reads that, and copies only its vocabulary.
    """
    text = prepared_dir(run, recipe)
    if find_prepared(recipe.data.corpus) is None:
        part = path_inside(run, ".part")
        remedy = "name another run directory"
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
    check_prepared(open_prepared(text, verify=False), recipe)
    vocabulary = (text / VOCABULARY).read_bytes()
    replace_bytes(path_inside(run, VOCABULARY), vocabulary)


def prepared_dir(run: Path, recipe: Recipe) -> Path:
    """Return the directory of the encoded text: the recipe's corpus, or the run's own copy."""
    return find_prepared(recipe.data.corpus) or run / DATA


def encode_recipe_corpus(recipe: Recipe, out: Path) -> PreparedCorpus:
    """Encode the text of the recipe's corpus into a directory."""
    data = recipe.data
    size = recipe.model.vocab_size
    return encode_corpus(data.corpus, data.source, data.target, size, out, data.vocabulary)


def open_corpus(run: Path, recipe: Recipe, world: World) -> PreparedCorpus:
    """Open the encoded text of a run and check that all ranks read the same."""
    if not world.is_rank_zero and not (run / VOCABULARY).exists():
        raise UserError(
            f"{run}: this process does not see the run directory of process 0: "
            "put the run directory on a file system that all machines share"
        )
    corpus = open_prepared(prepared_dir(run, recipe), verify=world.local_rank == 0)

    def difference(ours: dict, theirs: dict) -> str:
        what = "vocabulary" if ours[VOCABULARY] != theirs[VOCABULARY] else "content"
        return f"the text in {corpus.directory} has another {what}"

    world.check_agreement(corpus.files, difference)
    check_vocabulary(corpus.directory, corpus.files[VOCABULARY]["sha256"], run)
    return corpus


def check_prepared(corpus: PreparedCorpus, recipe: Recipe) -> None:
    """Raise UserError if a prepared corpus is not what the recipe asks for."""
    data = recipe.data
    for key, prepared, requested in (
        ("data.source", corpus.source, data.source),
        ("data.target", corpus.target, data.target),
        ("data.vocabulary", corpus.vocabulary_kind, data.vocabulary),
        ("model.vocab_size", corpus.vocab_size, recipe.model.vocab_size),
    ):
        if prepared != requested:
            known, asked = as_override(prepared), as_override(requested)
            raise UserError(
                f"{corpus.directory}: prepared with {key}={known}, but the recipe has "
                f"{asked}: give {key}={known}, or prepare it again"
            )


def check_vocabulary(owner: Path, digest: str, run: Path) -> None:
    """Raise UserError if `owner`, a checkpoint or a corpus, uses another vocabulary than the run.

    digest  the sha256 of the vocabulary of `owner`; token ids mean nothing without it
    """
    if digest != sha256(run / VOCABULARY):
        raise UserError(f"{owner}: made with another vocabulary than {run / VOCABULARY}")
