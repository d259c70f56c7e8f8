"""The run directory, which has everything to resume, use or reproduce a run.

recipe.yaml         the resolved recipe
vocabulary.json     the vocabulary, or both
data/               the training text, prepared, unless the recipe names a prepared corpus
environment.json    versions, commit and device, a list with one entry for each start
log.jsonl           one line per event; tensorboard/ has the same curves
checkpoints/        see `dynconv.train.checkpoint`

`open_session` makes or resumes one for training; `load_model` opens one to use its model.
"""

import json
import os
import platform
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import torch
from torch import nn

from dynconv.config import Recipe
from dynconv.config.files import locked, replace_text
from dynconv.config.load import FREE, differences, dump_recipe, load_recipe
from dynconv.decode.unknown import read_dictionary
from dynconv.errors import UserError
from dynconv.models import build
from dynconv.tasks import Evaluation, HeldOut, Task, task_of
from dynconv.text import Prepared, Vocabularies, is_prepared, open_prepared, prepare
from dynconv.train import checkpoint as checkpoints
from dynconv.train.checkpoint import Checkpoint
from dynconv.train.distributed import Ranks, default_device
from dynconv.train.session import Progress, Session
from dynconv.train.update import TokenLoss, choose_precision, make_optimizer


@contextmanager
def run_lock(run: Path, ranks: Ranks) -> Iterator[None]:
    """Keep other training processes out of a run directory.

    It is made if it is missing, and deleted when training fails before anything is in it.
    """
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


@contextmanager
def explain_memory(recipe: Recipe) -> Iterator[None]:
    """Turn PyTorch's error of a full GPU into a UserError that names the remedy."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise UserError(
            f"{str(error).split('.')[0]}: lower train.batch_tokens (now "
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
    recipe = ranks.once(lambda: prepare_run(run, recipe, prepared))
    corpus = open_corpus(run, recipe, ranks)
    task = task_of(recipe)
    vocabularies = Vocabularies.load(run / "vocabulary.json")
    valid = task.held_out(corpus, vocabularies, "valid")
    text = task.training_text(corpus)
    torch.manual_seed(recipe.train.seed)
    model = build(recipe.model).to(ranks.device)
    check_lengths(valid, model.max_positions)

    def decide() -> str:
        if recipe.train.precision != "auto":
            return recipe.train.precision
        return choose_precision(model, task, text, recipe, ranks.device)

    recipe = with_precision(recipe, ranks.once(decide))
    config = recipe.train
    optimizer, scaler = make_optimizer(model, config, ranks.device)
    session = Session(
        run=run,
        recipe=recipe,
        task=task,
        ranks=ranks,
        vocabularies=vocabularies,
        corpus=corpus,
        text=text,
        valid=valid,
        model=model,
        loss_of=TokenLoss(model, task.loss, config.label_smoothing, config.precision),
        optimizer=optimizer,
        scaler=scaler,
        progress=Progress(),
        history=[],
    )
    ranks.once(lambda: record_start(session))
    checkpoints.restore(session)
    session.loss_of = ranks.wrap(session.loss_of)  # which sends the weights of rank 0 to the others
    return session


def prepare_run(run: Path, recipe: Recipe, prepared: Path | None = None) -> Recipe:
    """Prepare text and vocabulary of a new run, or check that an old one has the same recipe.

    The text is copied from `prepared`, where that is given.
    """
    if checkpoints.directories(run):
        return same_recipe(recipe, run)
    text = run / "data"
    if not is_prepared(Path(recipe.data.corpus)):
        if text.exists() and not made_by_run(text, recipe):
            raise UserError(f"{text} is there, and is not a run's: name another --run")
        shutil.rmtree(text, ignore_errors=True)
        if prepared is None:
            prepare_for(recipe, text)
        else:
            shutil.copytree(prepared, text)
    check_text(open_prepared(text_of(run, recipe), verify=False), recipe)
    shutil.copyfile(text_of(run, recipe) / "vocabulary.json", run / "vocabulary.json")
    return recipe


def made_by_run(text: Path, recipe: Recipe) -> bool:
    """Return whether RUN/data is a run's, so that it may be made again.

    It is where a recipe.yaml lies beside it, or, after a start that was killed before it wrote
    that, where it was prepared from the very corpus that the recipe names.
    """
    if (text.parent / "recipe.yaml").exists():
        return True
    return is_prepared(text) and open_prepared(text, verify=False).corpus == recipe.data.corpus


def same_recipe(recipe: Recipe, run: Path, free: tuple[str, ...] = FREE) -> Recipe:
    """Return the recipe with the precision that was decided when the run began.

    Raises UserError when the run has another recipe, in keys that do not begin with one of `free`.
    """
    there = recipe_of(run)
    if recipe.train.precision == "auto":
        recipe = with_precision(recipe, there.train.precision)
    if changed := differences(recipe, there, free):
        raise UserError(
            f"{run} holds the run of another recipe ({'; '.join(changed)}): name another "
            f"--run, give the same values, or put the new ones also into {run / 'recipe.yaml'}"
        )
    return recipe


def with_precision(recipe: Recipe, precision: str) -> Recipe:
    """Return the recipe with its train.precision decided."""
    return replace(recipe, train=replace(recipe.train, precision=precision))


def recipe_of(run: Path) -> Recipe:
    """Read the resolved recipe of a run."""
    try:
        return load_recipe(run / "recipe.yaml")
    except UserError as error:
        raise UserError(f"{error}; if another version made this run, name another --run") from None


def prepare_for(recipe: Recipe, out: Path) -> Prepared:
    """Encode the recipe's corpus, which is text, into a directory."""
    data = recipe.data
    size = recipe.model.vocab_size
    return prepare(data.corpus, data.source, data.target, size, out, data.vocabulary)


def text_of(run: Path, recipe: Recipe) -> Path:
    """Return where the prepared text is: the recipe's corpus, or the run's own copy of it."""
    corpus = Path(recipe.data.corpus)
    return corpus if is_prepared(corpus) else run / "data"


def open_corpus(run: Path, recipe: Recipe, ranks: Ranks) -> Prepared:
    """Open the prepared text of a run and check that all ranks see the same."""
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
    checkpoints.check_vocabulary(corpus.directory, corpus.files["vocabulary.json"]["sha256"], run)
    return corpus


def check_text(corpus: Prepared, recipe: Recipe) -> None:
    """Raise UserError when a prepared corpus is not what the recipe asks for."""
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


def check_lengths(valid: HeldOut, most: int | None) -> None:
    """Raise UserError when validation needs more than `most` positions; None: no limit."""
    longest = int(valid.text.lengths(range(len(valid.text))).max())
    if most is not None and longest > most:
        raise UserError(
            f"split valid has a line of {longest} tokens, <eos> included, and model.max_positions "
            f"is {most}: raise it, or shorten the line"
        )


def record_start(session: Session) -> None:
    """Write recipe.yaml, and add this start to environment.json."""
    run, device = session.run, session.ranks.device
    replace_text(run / "recipe.yaml", dump_recipe(session.recipe))
    path = run / "environment.json"
    start = {
        "python": platform.python_version(),
        **{name: metadata.version(name) for name in ("dynconv", "torch", "tokenizers", "numpy")},
        "commit": commit(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else processor(),
        "threads": torch.get_num_threads(),
        "processes": session.ranks.size,
    }
    starts = []
    with suppress(OSError, ValueError):  # there is none, or a crash has spoiled it
        starts = json.loads(path.read_text(encoding="utf-8"))
    replace_text(path, json.dumps([*starts, start], indent=1))


def processor() -> str:
    """Return the processor's model name."""
    cpuinfo = Path("/proc/cpuinfo")  # Linux
    lines = cpuinfo.read_text(encoding="utf-8").splitlines() if cpuinfo.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def commit() -> str | None:
    """Return the commit of dynconv's working tree, with `+changes`; None where git has none."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(Path(__file__).parent), *arguments]
        return subprocess.check_output(command, text=True, stderr=subprocess.DEVNULL).strip()

    try:
        git("ls-files", "--error-unmatch", Path(__file__).name)  # fails inside another's repository
        changed = git("status", "--porcelain", "--untracked-files=no")
        return git("rev-parse", "HEAD") + ("+changes" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return None


class Trained(NamedTuple):
    """A model and what is needed to use it."""

    recipe: Recipe
    vocabularies: Vocabularies
    model: nn.Module
    checkpoint: Checkpoint

    @property
    def task(self) -> Task:
        return task_of(self.recipe)

    def evaluate(self, split: str, corpus: str | None = None) -> Evaluation:
        """Score the model on a split of its corpus, or of another text in the same languages.

        Writes RUN/SPLIT.scores.json and, for a translator, RUN/SPLIT.hypotheses.txt.
        """
        recipe = self.recipe
        if corpus is not None:
            recipe = replace(recipe, data=replace(recipe.data, corpus=corpus))
        path = self.checkpoint.path
        found = task_of(recipe).evaluate(self.model, self.vocabularies, split, path.name)
        found.write(path.parent.parent)
        return found


def load_model(run: Path, which: str = "best") -> Trained:
    """Load a run's model in eval mode, with the weights of a checkpoint: best, last or a name.

    Raises UserError when a file is missing, truncated, foreign or of another recipe.
    """
    if not (run / "recipe.yaml").exists():
        raise UserError(f"{run}: no run directory (it has no recipe.yaml)")
    recipe = recipe_of(run)
    vocabularies = Vocabularies.load(run / "vocabulary.json")
    checkpoint = checkpoints.choose(run, which)
    checkpoints.check_vocabulary(checkpoint.path, checkpoint.meta["vocabulary"], run)
    model = build(recipe.model).to(default_device())
    checkpoints.fill(model, checkpoints.load_weights(checkpoint), checkpoint.path)
    return Trained(recipe, vocabularies, model.eval(), checkpoint)
