"""The training loop."""

import math
import resource
import signal
import sys
from pathlib import Path

import torch
from torch import nn

from dynconv.config import Recipe
from dynconv.models import build
from dynconv.text import BPE, Prepared
from dynconv.train import checkpoint as checkpoints
from dynconv.train.data import ahead, load_pairs, works
from dynconv.train.finite import overflow, stop
from dynconv.train.log import Log, Silence, read
from dynconv.train.precision import faster
from dynconv.train.profile import profiling
from dynconv.train.ranks import Ranks, joined
from dynconv.train.run import locked, open_run, record, with_precision
from dynconv.train.schedule import learning_rate
from dynconv.train.signals import signals
from dynconv.train.state import resume, saver
from dynconv.train.update import TokenLoss, backward
from dynconv.train.validate import validate
from dynconv.train.watch import Watch, interval

LOG_EVERY = 20
"""updates between two lines of log.jsonl"""


def train(recipe: Recipe, run: Path, watch: Watch | None = None) -> signal.Signals | None:
    """Train by a recipe in a run directory, from its newest intact checkpoint if it has one.

    Under torchrun this process is one of several, which share the work. Returns the signal (ctrl-C
    or SIGTERM) that ended it early, the work saved; None when it is finished. Raises UserError for
    what a user can mend. `watch` receives where the time went.
    """
    with joined() as ranks, locked(run, ranks):
        recipe, corpus = open_run(run, recipe, ranks)
        return loop(recipe, run, corpus, ranks, watch or Watch())


def loop(
    recipe: Recipe, run: Path, corpus: Prepared, ranks: Ranks, watch: Watch
) -> signal.Signals | None:
    """Updates, validations and checkpoints until the recipe's number or a signal."""
    bpe = BPE.load(run / "bpe.json")
    valid = load_pairs(corpus, bpe, "valid")
    torch.manual_seed(recipe.train.seed)
    model = build(recipe.model).to(ranks.device)
    if recipe.train.precision == "auto":
        choice = ranks.once(lambda: faster(model, corpus, recipe, ranks.device))
        recipe = with_precision(recipe, choice)
    ranks.once(lambda: record(run, recipe, ranks))
    config = recipe.train
    adam = torch.optim.AdamW(
        model.parameters(),
        betas=config.betas,
        eps=config.eps,
        weight_decay=config.weight_decay,
        fused=True,
    )
    scaler = torch.amp.GradScaler(ranks.device.type, enabled=config.precision == "float16")
    done, place = resume(run, model, adam, scaler, config, ranks)
    save = saver(run, model, adam, scaler, config, ranks)
    loss_of = ranks.wrap(TokenLoss(model, config.label_smoothing, config.precision))

    with (
        Log(run, done, config.updates) if ranks.first else Silence() as log,
        signals(once=ranks.size == 1) as received,
        profiling(run, recipe.profile and ranks.first) as profile,
    ):
        events = ranks.once(lambda: read(run))
        bleus = [event["bleu"] for event in events if event["event"] == "valid"]
        updates = ahead(works(corpus, recipe.data.max_tokens, config, place, ranks))
        every, skipped, tokens, total = config.validate_every, 0, 0, 0.0
        watch.lap("start")
        began = watch.training
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
                    what = (
                        f"loss {loss / work.tokens:g}, gradient norm {norm:g} at update {done + 1}"
                    )
                    stop(run, what, done + 1, work, losses, corpus, bpe, ranks)
                scaler.update()
                continue
            scaler.step(adam)
            scaler.update()
            done, skipped, tokens, total = done + 1, 0, tokens + work.tokens, total + loss
            watch.lap("optimizer")

            watch.update()
            validations = -(-config.updates // every) - done // every
            left = watch.left(config.updates - done, validations)
            log.progress(loss=f"{loss / work.tokens:.3g}", lr=f"{rate:.3g}", left=interval(left))
            profile()
            if done % LOG_EVERY == 0:
                log.event(
                    "train",
                    done,
                    loss=total / tokens,
                    lr=rate,
                    norm=norm,
                    scale=scaler.get_scale(),
                    tokens_per_s=tokens / (watch.training - began),
                    memory_gb=memory(ranks.device) / 1e9,
                    left_s=left,
                    overhead=watch.overhead,
                )
                tokens, total, began = 0, 0.0, watch.training
            watch.lap("log")

            validated = done % every == 0 or done == config.updates
            if validated:
                scores = validate(model, bpe, valid, config.batch_tokens, ranks)
                watch.validations += 1
                watch.lap("validate")
                bleus.append(scores.bleu)
                log.event("valid", done, **scores._asdict())
                log.say(f"update {done}: validation loss {scores.loss:.3f}, BLEU {scores.bleu:.2f}")
                save(done, place, scores)
                watch.lap("save")
            if asked:
                if not validated:
                    save(done, place, None)
                log.say(f"stopped at update {done}, saved; the same command goes on from there")
                return signal.Signals(received() or signal.SIGTERM)

        if config.average and not (run / "checkpoints" / "average").exists():
            count = average(run, model, config.average)
            scores = validate(model, bpe, valid, config.batch_tokens, ranks)
            log.event("average", done, **scores._asdict())
            log.say(f"average of {count}: loss {scores.loss:.3f}, BLEU {scores.bleu:.2f}")
            save(done, place, scores, average=True)
    return None


def memory(device: torch.device) -> int:
    """The most bytes so far: of tensors on a GPU, or of the process on a CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    kilo = 1 if sys.platform == "darwin" else 1024  # Linux counts in kilobytes
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * kilo


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
