"""Opens a session: everything that training needs before its first update."""

from functools import partial
from pathlib import Path

import torch
from torch import nn

from dynconv.config import Recipe, TrainConfig
from dynconv.config.load import list_differences
from dynconv.config.optimizers import OPTIMIZERS
from dynconv.decode.unknown import read_dictionary
from dynconv.errors import UserError
from dynconv.files import claim
from dynconv.models import build
from dynconv.models.activation_checkpointing import set_activation_checkpointing
from dynconv.tasks import EncodedSplit, task_of
from dynconv.train.checkpoint_store import CheckpointStore
from dynconv.train.data import count_too_long
from dynconv.train.distributed import World
from dynconv.train.precision import choose_precision, with_precision
from dynconv.train.restoring import restore
from dynconv.train.run_corpus import open_corpus, prepare_run_corpus
from dynconv.train.run_directory import is_run, match_recorded_recipe, record_start
from dynconv.train.session import Session
from dynconv.train.stopwatch import Stopwatch
from dynconv.train.update import BatchLoss


def open_session(
    recipe: Recipe, run: Path, world: World, stopwatch: Stopwatch, prepared: Path | None = None
) -> Session:
    """Return a session that is ready for its first update, or for the one after its checkpoint.

    Raises UserError if the directory contains the run of another recipe or the text has changed;
    also, on every rank, if the recipe or the text of any rank differs from rank 0's.
    """
    world.check_agreement(recipe, lambda ours, theirs: "; ".join(list_differences(theirs, ours)))
    if recipe.decode.replace_unknown and recipe.decode.dictionary:
        read_dictionary(Path(recipe.decode.dictionary))  # reports a mistake before training
    recipe = world.on_rank_zero(lambda: prepare_run(run, recipe, prepared))
    corpus = open_corpus(run, recipe, world)
    task = task_of(recipe)
    vocabularies = corpus.load_vocabularies()
    validation_split = task.encode_split(corpus, vocabularies, "valid")
    examples = task.training_examples(corpus)
    left_out = world.on_rank_zero(lambda: count_too_long(examples, recipe.example_limit))
    torch.manual_seed(recipe.train.seed)
    model = build(recipe.model).to(world.device)
    set_activation_checkpointing(model, recipe.train.checkpoint_activations)
    check_positions(validation_split, model.max_positions)
    if recipe.train.precision == "auto":
        make_loss_module = partial(BatchLoss, model, task)
        choice = world.on_rank_zero(
            lambda: choose_precision(recipe, examples, make_loss_module, world.device)
        )
        recipe = with_precision(recipe, choice)
    optimizer, scaler = make_optimizer(model, recipe.train, world.device)
    session = Session(
        run=run,
        recipe=recipe,
        task=task,
        world=world,
        vocabularies=vocabularies,
        corpus=corpus,
        examples=examples,
        left_out=left_out,
        validation_split=validation_split,
        model=model,
        loss_module=BatchLoss(model, task, recipe.train.precision),
        optimizer=optimizer,
        scaler=scaler,
        stopwatch=stopwatch,
    )
    restore(session)
    world.on_rank_zero(lambda: record_start(run, recipe, world, len(examples), left_out))
    session.loss_module = world.wrap(session.loss_module)  # broadcasts the weights of rank 0
    return session


def prepare_run(run: Path, recipe: Recipe, prepared: Path | None) -> Recipe:
    """Claim a new run and prepare its text, or check that an old one has the same recipe.

    Returns the recipe; in place of the precision "auto" it has the one that an old run chose.
    Raises UserError if the directory is not new, empty or a run directory.
    """
    if not is_run(run):
        claim(run, "name another run directory")
    if CheckpointStore(run).list_paths():
        return match_recorded_recipe(recipe, run)
    prepare_run_corpus(run, recipe, prepared)
    return recipe


def check_positions(validation_split: EncodedSplit, max_positions: int | None) -> None:
    """Raise UserError if a validation example exceeds `max_positions`; None means no limit."""
    examples = validation_split.examples
    longest = int(examples.lengths(range(len(examples))).max())
    if max_positions is not None and longest > max_positions:
        raise UserError(
            f"split valid has a line of {longest} tokens, <eos> included, and model.max_positions "
            f"is {max_positions}: raise it, or shorten the line"
        )


def make_optimizer(
    model: nn.Module, config: TrainConfig, device: torch.device
) -> tuple[torch.optim.Optimizer, torch.amp.GradScaler]:
    """Return the optimizer and the gradient scaler in their initial state."""
    chosen = OPTIMIZERS[config.optimizer]
    names = ("lr", "weight_decay", *chosen.options)
    options = chosen.constants | {name: getattr(config, name) for name in names}
    optimizer = getattr(torch.optim, chosen.class_name)(model.parameters(), **options)
    return optimizer, torch.amp.GradScaler(device.type, enabled=config.precision == "float16")
