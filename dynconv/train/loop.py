"""The training loop."""

import math
import signal
from pathlib import Path

import torch
from torch import nn

from dynconv.config import Recipe
from dynconv.errors import UserError
from dynconv.models import Seq2Seq, build
from dynconv.text import BPE, Prepared
from dynconv.train import checkpoint as checkpoints
from dynconv.train.data import ahead, load_pairs, works
from dynconv.train.finite import overflow, stop
from dynconv.train.log import Log, Silence, read
from dynconv.train.precision import faster
from dynconv.train.profile import profiling
from dynconv.train.progress import Progress, interval
from dynconv.train.ranks import Ranks, joined
from dynconv.train.run import locked, open_run, record, with_precision
from dynconv.train.schedule import learning_rate
from dynconv.train.signals import signals
from dynconv.train.state import begin, resume, save
from dynconv.train.update import TokenLoss, backward
from dynconv.train.validate import validate
from dynconv.train.watch import Watch


def train(recipe: Recipe, run: Path, watch: Watch | None = None) -> signal.Signals | None:
    """Train by a recipe in a run directory, from its newest intact checkpoint if it has one.

    Under torchrun this process is one of several, which share the work. Returns the signal (ctrl-C
    or SIGTERM) that ended it early, the work saved; None when it is finished. Raises UserError for
    what a user can mend. `watch` receives where the time went.
    """
    with joined() as ranks, locked(run, ranks):
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
    bpe = BPE.load(run / "bpe.json")
    valid = load_pairs(corpus, bpe, "valid")
    torch.manual_seed(recipe.train.seed)
    model = build(recipe.model).to(ranks.device)
    recipe = ranks.once(lambda: resolve(run, recipe, model, corpus, ranks))
    config = recipe.train
    state = begin(model, config, ranks.device)
    done, place = resume(run, state, config, ranks)
    loss_of = ranks.wrap(TokenLoss(model, config.label_smoothing, config.precision))
    _, adam, scaler = state

    with (
        Log(run, done, config.updates) if ranks.first else Silence() as log,
        signals(once=ranks.size == 1) as received,
        profiling(run, recipe.profile and ranks.first) as profile,
    ):
        log.say(
            f"update {done} of {config.updates}; {ranks.size} "
            f"process{'es' if ranks.size > 1 else ''} on {ranks.device.type}, {config.precision}"
        )
        events = ranks.once(lambda: read(run))
        bleus = [event["bleu"] for event in events if event["event"] == "valid"]
        updates = ahead(works(corpus, recipe.data.max_tokens, config, place, ranks))
        progress, skipped = Progress(log, watch, config, ranks.device), 0
        watch.lap("start")
        while done < config.updates and not stale(bleus, config.patience):
            work = next(updates)
            watch.lap("data")

            rate = learning_rate(config, done)
            for group in adam.param_groups:
                group["lr"] = rate
            adam.zero_grad()
            losses = backward(loss_of, work, scaler, ranks, watch)
            scaler.unscale_(adam)
            norm = nn.utils.clip_grad_norm_(model.parameters(), config.clip or math.inf).item()
            # the signal rides along, so that all ranks end after the same update
            loss, asked = ranks.sum(torch.stack(losses).double().sum(), received())
            place = work.place
            if not math.isfinite(loss + norm):
                log.event("skip", done + 1, scale=scaler.get_scale())
                skipped += not overflow(loss, scaler)
                if skipped > config.skip:
                    stop(run, done + 1, loss, norm, work, losses, corpus, bpe, ranks)
                scaler.update()
                continue
            scaler.step(adam)
            scaler.update()
            done, skipped = done + 1, 0
            watch.lap("optimizer")

            progress.update(done, loss, work.tokens, lr=rate, norm=norm, scale=scaler.get_scale())
            profile()
            watch.lap("log")

            validated = done % config.validate_every == 0 or done == config.updates
            if validated:
                scores = validate(model, bpe, valid, config.batch_tokens, ranks)
                bleus.append(scores.bleu)
                log.event("valid", done, **scores._asdict())
                watch.lap("validate")
                save(run, state, done, place, scores, config, ranks)
                watch.lap("save")
                watch.validations += 1
                log.say(f"update {done}: {scores}, {interval(progress.left(done))} left")
            if asked:
                if not validated:
                    save(run, state, done, place, None, config, ranks)
                log.say(f"stopped at update {done}, saved; the same command goes on from there")
                return signal.Signals(received() or signal.SIGTERM)

        if config.average and not (run / "checkpoints" / "average").exists():
            count = average(run, model, config.average)
            scores = validate(model, bpe, valid, config.batch_tokens, ranks)
            log.event("average", done, **scores._asdict())
            save(run, state, done, place, scores, config, ranks, average=True)
            log.say(f"average of {count}: {scores}")
    return None


def resolve(run: Path, recipe: Recipe, model: Seq2Seq, corpus: Prepared, ranks: Ranks) -> Recipe:
    """Decide what the recipe leaves open, the precision, and write it into the run directory."""
    if recipe.train.precision == "auto":
        recipe = with_precision(recipe, faster(model, corpus, recipe, ranks.device))
    record(run, recipe, ranks)
    return recipe


def average(run: Path, model: nn.Module, most: int) -> int:
    """Give the model the mean weights of the last checkpoints; their number."""
    last = checkpoints.listing(run)[-most:]
    checkpoints.fill(model, checkpoints.mean(last), run / "checkpoints")
    return len(last)


def stale(bleus: list[float], patience: int | None) -> bool:
    """Whether the last `patience` validations brought no better BLEU."""
    if patience is None or len(bleus) <= patience:
        return False
    return max(bleus[-patience:]) <= max(bleus[:-patience])
