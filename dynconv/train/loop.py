"""The training loop."""

import math
import signal
import time
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import torch
from torch import nn

from dynconv.config import Recipe
from dynconv.errors import UserError
from dynconv.models import Seq2Seq, build
from dynconv.train import checkpoint as checkpoints
from dynconv.train.data import Place, load_pairs, stream
from dynconv.train.log import Log, read
from dynconv.train.precision import faster
from dynconv.train.run import default_device, open_run, record, vocabulary_hash, with_precision
from dynconv.train.schedule import learning_rate
from dynconv.train.update import backward
from dynconv.train.validate import Validation, validate

LOG_EVERY = 20
"""updates between two lines of log.jsonl"""


def train(recipe: Recipe, run: Path) -> bool:
    """Train by a recipe in a run directory, from its newest checkpoint if it has one.

    Returns False when ctrl-C ended it early; the work is then saved.
    """
    device = default_device()
    recipe, bpe = open_run(run, recipe)
    pairs = load_pairs(recipe.data, bpe, "train", recipe.data.max_tokens)
    valid = load_pairs(recipe.data, bpe, "valid")
    torch.manual_seed(recipe.train.seed)
    model = build(recipe.model).to(device)
    if recipe.train.precision == "auto":
        recipe = with_precision(recipe, faster(model, pairs, recipe.train))
    record(run, recipe, device)
    config = recipe.train
    torch.manual_seed(config.seed)  # again: timing the precisions has drawn dropout masks
    adam = torch.optim.AdamW(
        model.parameters(), betas=config.betas, eps=config.eps, weight_decay=config.weight_decay
    )
    done, place = resume(run, model, adam)
    batches = stream(pairs, config.batch_tokens, config.seed, place)

    def save(name: str, scores: Validation | None, state: dict | None) -> None:
        loss, bleu = scores or (None, None)
        meta = {"update": done, "place": place, "loss": loss, "bleu": bleu}
        meta["vocabulary"] = vocabulary_hash(run)
        checkpoints.save(run / "checkpoints" / name, model, state, meta)
        checkpoints.prune(run, config.keep)

    with Log(run, done, config.updates) as log, signals() as interrupted:
        bleus = [event["bleu"] for event in read(run) if event["event"] == "valid"]
        clock, seen, total = time.perf_counter(), 0, 0.0
        while done < config.updates and not stale(bleus, config.patience):
            rate = learning_rate(config, done)
            for group in adam.param_groups:
                group["lr"] = rate
            micro = list(islice(batches, config.accumulate))
            place = micro[-1][1]
            adam.zero_grad()
            loss, tokens = backward(
                model,
                [batch for batch, _ in micro],
                smoothing=config.label_smoothing,
                precision=config.precision,
            )
            norm = nn.utils.clip_grad_norm_(model.parameters(), config.clip or math.inf).item()
            if not math.isfinite(loss + norm):
                raise UserError(
                    f"{run}: loss {loss}, gradient norm {norm} at update {done + 1}: "
                    "go on from the last checkpoint with a lower train.lr or more train.warmup"
                )
            adam.step()
            done, seen, total = done + 1, seen + tokens, total + loss
            log.progress(loss=loss / tokens, lr=rate)

            if done % LOG_EVERY == 0:
                speed = seen / (time.perf_counter() - clock)
                log.event("train", done, loss=total / seen, lr=rate, norm=norm, tokens_per_s=speed)
                clock, seen, total = time.perf_counter(), 0, 0.0
            validated = done % config.validate_every == 0 or done == config.updates
            if validated:
                paused = time.perf_counter()
                scores = validate(model, bpe, valid, config.batch_tokens)
                log.event("valid", done, **scores._asdict())
                log.say(f"update {done}: validation loss {scores.loss:.3f}, BLEU {scores.bleu:.2f}")
                bleus.append(scores.bleu)
                save(f"{done:06d}", scores, training_state(adam))
                clock += time.perf_counter() - paused
            if interrupted():
                if not validated:
                    save(f"{done:06d}", None, training_state(adam))
                log.say(f"stopped at update {done}, saved; the same command goes on from there")
                return False

        average = run / "checkpoints" / "average"
        if config.average and not average.exists():
            last = checkpoints.listing(run)[-config.average :]
            checkpoints.fill(model, checkpoints.mean(last), average)
            scores = validate(model, bpe, valid, config.batch_tokens)
            log.event("average", done, **scores._asdict())
            log.say(f"average of {len(last)}: loss {scores.loss:.3f}, BLEU {scores.bleu:.2f}")
            save(average.name, scores, None)
    return True


def training_state(adam: torch.optim.Optimizer) -> dict:
    """What the next update depends on beside the weights and the place in the data."""
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    return {"adam": adam.state_dict(), "random": torch.get_rng_state(), "cuda": cuda}


def resume(run: Path, model: Seq2Seq, adam: torch.optim.Optimizer) -> tuple[int, Place]:
    """Restore the newest checkpoint that training left; updates done and place in the data."""
    left = [c for c in checkpoints.listing(run) if (c.path / "state.pt").exists()]
    if not left:
        return 0, Place()
    last = left[-1]
    checkpoints.check_vocabulary(last, vocabulary_hash(run))
    checkpoints.fill(model, checkpoints.load_weights(last), last.path)
    state = checkpoints.load_state(last)
    adam.load_state_dict(state["adam"])
    torch.set_rng_state(state["random"])
    if state["cuda"] and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(state["cuda"])
    return last.meta["update"], Place(*last.meta["place"])


def stale(bleus: list[float], patience: int | None) -> bool:
    """Whether the last `patience` validations brought no better BLEU."""
    if patience is None or len(bleus) <= patience:
        return False
    return max(bleus[-patience:]) <= max(bleus[:-patience])


@contextmanager
def signals():
    """Ctrl-C asks the loop to end after its update; a second one ends it at once."""
    asked = False

    def handler(*_) -> None:
        nonlocal asked
        asked = True
        signal.signal(signal.SIGINT, previous)

    previous = signal.signal(signal.SIGINT, handler)
    try:
        yield lambda: asked
    finally:
        signal.signal(signal.SIGINT, previous)
