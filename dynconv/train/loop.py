"""The training loop."""

import math
import signal
from pathlib import Path

import torch
from torch import nn

from dynconv.config import Recipe, TrainConfig
from dynconv.decode.unknown import read_dictionary
from dynconv.errors import UserError
from dynconv.models import build
from dynconv.text import Prepared, Vocabularies
from dynconv.train import checkpoint as checkpoints
from dynconv.train.data import Corpus, HeldOut, ahead, held_out, training_text, works
from dynconv.train.finite import overflow, stop
from dynconv.train.log import Log, Silence, read
from dynconv.train.precision import faster
from dynconv.train.profile import profiling
from dynconv.train.progress import Progress, interval
from dynconv.train.ranks import Ranks, joined
from dynconv.train.run import alone, open_run, record, with_precision
from dynconv.train.schedule import learning_rate, plateau
from dynconv.train.signals import signals
from dynconv.train.state import Done, begin, rate, resume, save
from dynconv.train.update import TokenLoss, backward
from dynconv.train.validate import Validation, validate
from dynconv.train.watch import Watch


def train(recipe: Recipe, run: Path, watch: Watch | None = None) -> signal.Signals | None:
    """Train by a recipe in a run directory, from its newest intact checkpoint if it has one.

    Under torchrun this process is one of several, which share the work. Returns the signal (ctrl-C
    or SIGTERM) that ended it early, the work saved; None when it is finished. Raises UserError for
    what a user can mend. `watch` receives where the time went.
    """
    with joined() as ranks, alone(run, ranks):
        recipe, corpus = open_run(run, recipe, ranks)
        try:
            return loop(recipe, run, corpus, ranks, watch or Watch())
        except torch.OutOfMemoryError as error:
            raise UserError(
                f"{str(error).split('.')[0]}: lower train.batch_tokens (now "
                f"{recipe.train.batch_tokens}) and raise train.accumulate as much"
            ) from None


def loop(
    recipe: Recipe, run: Path, corpus: Prepared, ranks: Ranks, watch: Watch
) -> signal.Signals | None:
    """Updates, validations and checkpoints until the recipe's number of updates, or a signal."""
    if recipe.decode.dictionary:  # not after training
        read_dictionary(Path(recipe.decode.dictionary))
    vocabularies = Vocabularies.load(run / "vocabulary.json")
    valid = held_out(corpus, recipe.data, vocabularies, "valid")
    text = training_text(corpus, recipe.data)
    torch.manual_seed(recipe.train.seed)
    model = build(recipe.model).to(ranks.device)
    check_lengths(valid, getattr(model, "max_positions", None))
    recipe = ranks.once(lambda: resolve(run, recipe, model, text, ranks))
    config = recipe.train
    state = begin(model, config, ranks.device)
    done = resume(run, state, config, corpus, ranks)
    loss_of = ranks.wrap(TokenLoss(model, config.label_smoothing, config.precision))
    _, optimizer, scaler = state

    def score() -> Validation:
        return validate(model, vocabularies, valid, recipe.metric, config.batch_tokens, ranks)

    with (
        signals() as received,
        start_log(run, done, config, ranks) as log,
        profiling(run, recipe.profile and ranks.first) as profile,
    ):
        log.say(
            f"update {done.updates} of {config.updates}; {ranks.size} "
            f"process{'es' if ranks.size > 1 else ''} on {ranks.device.type}, {config.precision}"
        )
        events = ranks.once(lambda: read(run))
        found = [validation(event) for event in events if event["event"] == "valid"]
        updates = ahead(works(text, recipe.data.longest, config, done.place, ranks))
        progress, skipped = Progress(log, watch, config, ranks.device), 0
        watch.lap("start")
        while True:
            if done.updates and due(done.updates, config) and not done.validated:
                found.append(score())
                log.event("valid", done.updates, **found[-1]._asdict())
                rate(run, done, found[-1], config, ranks)
                done = done._replace(validated=True)
                watch.lap("validate")
                watch.validations += 1
                left = interval(progress.left(done.updates))
                log.say(f"update {done.updates}: {found[-1]}, {left} left")
            if done.updates >= config.updates or over(config, found):
                break

            work = next(updates)
            watch.lap("data")
            lr = learning_rate(config, done.updates, [each.loss for each in found])
            for group in optimizer.param_groups:
                group["lr"] = lr
            # between ranks gradients stay in the buckets that are exchanged
            optimizer.zero_grad(set_to_none=ranks.size == 1)
            losses = backward(loss_of, work, scaler, ranks, watch)
            scaler.unscale_(optimizer)
            norm = nn.utils.clip_grad_norm_(model.parameters(), config.clip or math.inf)
            # the signal rides along, so that all ranks end after the same update
            loss, asked = ranks.sum(torch.stack(losses).double().sum(), received())
            norm = norm.item()
            if not math.isfinite(loss + norm):
                update = done.updates + 1
                log.event("skip", update, scale=scaler.get_scale())
                skipped += not overflow(loss, scaler)
                if skipped > config.skip:
                    stop(run, update, loss, norm, work, losses, text, vocabularies, ranks)
                scaler.update()
                watch.lap("optimizer")
                continue
            scaler.step(optimizer)
            scaler.update()
            done, skipped = Done(done.updates + 1, work.place), 0
            watch.lap("optimizer")

            scale = scaler.get_scale()
            progress.update(done.updates, loss, work.tokens, lr=lr, norm=norm, scale=scale)
            profile()
            watch.lap("log")
            if due(done.updates, config) or asked:  # before validating: that may take long
                save(run, state, done, config, corpus, ranks)
                watch.lap("save")
            if asked:
                log.say(
                    f"stopped at update {done.updates}, saved; the same command goes on from there"
                )
                return signal.Signals(received() or signal.SIGTERM)

        if config.average and not (run / "checkpoints" / "average").exists():
            average(run, model, config.average, ranks)
            mean = score()
            ranks.once(lambda: save_average(run, model, mean))
            log.event("average", done.updates, **mean._asdict())
            log.say(f"average: {mean}")
    return None


def check_lengths(valid: HeldOut, most: int | None) -> None:
    """UserError, before the first update, when validation would ask for positions beyond `most`."""
    longest = int(valid.text.lengths(range(len(valid.text))).max())
    if most is not None and longest > most:
        raise UserError(
            f"split valid has a line of {longest} tokens, <eos> included, and model.max_positions "
            f"is {most}: raise it, or shorten the line"
        )


def due(updates: int, config: TrainConfig) -> bool:
    """Whether a checkpoint and a validation follow this update."""
    return updates % config.validate_every == 0 or updates == config.updates


def resolve(run: Path, recipe: Recipe, model: nn.Module, text: Corpus, ranks: Ranks) -> Recipe:
    """Decide what the recipe leaves open, the precision, and write it into the run directory."""
    if recipe.train.precision == "auto":
        recipe = with_precision(recipe, faster(model, text, recipe, ranks.device))
    record(run, recipe, ranks)
    return recipe


def average(run: Path, model: nn.Module, most: int, ranks: Ranks) -> None:
    """Give the model the mean weights of the last validated checkpoints."""
    last = ranks.once(lambda: checkpoints.validated(run)[-most:])
    checkpoints.fill(model, checkpoints.mean(last), run / "checkpoints")


def save_average(run: Path, model: nn.Module, scores: Validation) -> None:
    """Save the weights alone, with scores of their own."""
    meta = checkpoints.listing(run)[-1].meta | scores._asdict()
    checkpoints.save(run / "checkpoints" / "average", model, None, meta)


def start_log(run: Path, done: Done, config: TrainConfig, ranks: Ranks) -> Log | Silence:
    """Rank 0 keeps the log."""
    if not ranks.first:
        return Silence()
    return Log(run, done.updates, config.updates, done.validated)


def validation(event: dict) -> Validation:
    """What the log says of one."""
    return Validation(*(event[name] for name in Validation._fields))


def over(config: TrainConfig, found: list[Validation]) -> bool:
    """Whether training ends early: a plateau's rate is spent, or the scores get no better."""
    losses = [each.loss for each in found]
    if config.schedule == "plateau" and plateau(config, losses) < config.lr_end:
        return True
    if config.patience is None or len(found) <= config.patience:
        return False
    scores = [each.score for each in found]
    return max(scores[-config.patience :]) <= max(scores[: -config.patience])
