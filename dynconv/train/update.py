"""One update: its loss and gradient, learning rate, precision, and numbers that are not finite."""

import json
import math
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from itertools import islice
from statistics import median

import numpy as np
import torch
from torch import Tensor, nn

from dynconv.config import TrainConfig
from dynconv.errors import UserError
from dynconv.files import inside, replace_text
from dynconv.tasks import Task
from dynconv.text import Batch, Examples, Vocabularies
from dynconv.train.data import Place, UpdateBatches, iter_updates
from dynconv.train.distributed import Ranks
from dynconv.train.log import Log, SilentLog, Watch
from dynconv.train.session import Progress, Session, Update

DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16}
PLATEAU_FACTOR = 0.1
"""the factor of the schedule `plateau` (Gehring et al. 2017, section 4.2)"""
SPEEDUP = 1.1
"""bfloat16 is chosen when it makes an update at least this many times faster"""
TIMED_BATCHES = 5
"""batches that are timed in both precisions, after one to warm up"""
SMALLEST_SCALE = 2.0**-10
"""of a float16 loss; an overflow at this scale is not the scale's fault"""


class TokenLoss(nn.Module):
    """A task's loss of one batch, summed over its target tokens, as a module that DDP can wrap.

    Under autocast softmax, normalisation and loss are still computed in float32; on a CPU the first
    two are then rounded.
    """

    def __init__(self, model: nn.Module, task: Task, precision: str = "float32"):
        super().__init__()
        self.model, self.task, self.precision = model, task, precision

    def forward(self, batch: Batch) -> Tensor:
        with autocast(self.precision, batch.prefix.device):
            return self.task.loss(self.model, batch)


def autocast(precision: str, device: torch.device) -> AbstractContextManager:
    """Return the context of a forward pass: autocast to 16 bits, or nothing for float32."""
    dtype = DTYPES.get(precision)
    return torch.autocast(device.type, dtype) if dtype else nullcontext()


def make_update(
    session: Session, data: UpdateBatches, pending: Callable[[], int], log: Log | SilentLog
) -> Update | None:
    """Change the weights by one step of the optimizer.

    `pending` returns the signal that this process has received, or 0.

    Returns None when the loss or the gradient is not finite: then the weights stay as they are.
    Raises UserError when that happens more than train.skip times in a row.
    """
    config, ranks = session.recipe.train, session.ranks
    optimizer, scaler = session.optimizer, session.scaler
    lr = learning_rate(
        config, session.progress.updates, [validation.loss for validation in session.history]
    )
    for group in optimizer.param_groups:
        group["lr"] = lr
    # between ranks gradients stay in the buckets that are exchanged
    optimizer.zero_grad(set_to_none=ranks.size == 1)
    losses = backward(session.loss_of, data, scaler, ranks, log.watch)
    scaler.unscale_(optimizer)
    norm = nn.utils.clip_grad_norm_(session.model.parameters(), config.clip or math.inf)
    # the signal rides along, so that all ranks end after the same update
    loss, stop = ranks.sum(torch.stack(losses).double().sum(), pending())
    norm = norm.item()
    finite = math.isfinite(loss + norm)
    if finite:
        scaler.step(optimizer)
        session.progress = Progress(session.progress.updates + 1, data.place)
        session.skipped = 0
    else:
        log.event("skip", session.progress.updates + 1, scale=scaler.get_scale())
        session.skipped += not overflow(loss, scaler)
        if session.skipped > config.skip:
            stop_with_text(session, data, losses, loss, norm)
    scaler.update()
    log.watch.lap("optimizer")
    if not finite:
        return None
    return Update(loss, data.tokens, lr, norm, scaler.get_scale(), bool(stop))


def backward(
    loss_of: nn.Module,
    data: UpdateBatches,
    scaler: torch.amp.GradScaler,
    ranks: Ranks,
    watch: Watch,
) -> list[Tensor]:
    """Add to the gradients those of the mean loss per token over one update of all ranks.

    The loss is a sum over tokens, divided once by the number of tokens of the whole update, so that
    many small batches on many ranks give the gradient of one large batch. `loss_of` is a TokenLoss
    that `ranks` has wrapped. Returns the losses of this rank's batches.
    """
    losses = []
    for i, (batch, seed) in enumerate(zip(data.batches, data.seeds, strict=True), 1):
        torch.manual_seed(seed)
        # gradients are exchanged once, in the backward pass of the last batch
        exchange = ranks.size == 1 or i == len(data.batches)
        with nullcontext() if exchange else loss_of.no_sync():
            loss = loss_of(batch.to(ranks.device))
            watch.lap("forward")
            # DistributedDataParallel takes the mean over ranks, hence times their number
            scaler.scale(loss * (ranks.size / data.tokens)).backward()
            watch.lap("backward")
        losses.append(loss.detach())
    return losses


def make_optimizer(
    model: nn.Module, config: TrainConfig, device: torch.device
) -> tuple[torch.optim.Optimizer, torch.amp.GradScaler]:
    """Return the optimizer and the gradient scaler as they are before the first update."""
    if config.optimizer == "adam":
        options = {"betas": config.betas, "eps": config.eps}
        optimizer_class = torch.optim.AdamW
    else:
        options = {"momentum": config.momentum, "nesterov": True}
        optimizer_class = torch.optim.SGD
    options |= {"lr": config.lr, "weight_decay": config.weight_decay, "fused": True}
    optimizer = optimizer_class(model.parameters(), **options)
    return optimizer, torch.amp.GradScaler(device.type, enabled=config.precision == "float16")


def learning_rate(config: TrainConfig, done: int, losses: Sequence[float] = ()) -> float:
    """Return the learning rate of the update that follows `done` updates.

    Warm-up is linear from lr_start to lr. After it:

    inverse_sqrt  lr sqrt(warmup / done) (Vaswani et al. 2017, section 5.3)
    cosine        lr_end + (lr - lr_end) (1 + cos(pi p)) / 2, where p goes from 0 after warm-up to 1
                  after the last update (Loshchilov and Hutter 2017, equation 5)
    plateau       lr until a validation loss fails to improve, then divided by ten after that and
                  every later validation (Gehring et al. 2017, section 4.2); `losses` are those of
                  the validations so far
    """
    if done < config.warmup:
        return config.lr_start + (config.lr - config.lr_start) * done / config.warmup
    if config.schedule == "inverse_sqrt":
        return config.lr * math.sqrt(max(config.warmup, 1) / max(done, 1))
    if config.schedule == "plateau":
        return plateau(config, losses)
    progress = (done - config.warmup) / max(config.updates - config.warmup, 1)
    return config.lr_end + (config.lr - config.lr_end) * (1 + math.cos(math.pi * progress)) / 2


def plateau(config: TrainConfig, losses: Sequence[float]) -> float:
    """Return lr, multiplied by PLATEAU_FACTOR for each validation since one failed to improve.

    A loss that is NaN counts as infinite.
    """
    losses = [math.inf if math.isnan(loss) else loss for loss in losses]
    worse = (i for i in range(1, len(losses)) if losses[i] >= min(losses[:i]))
    return config.lr * PLATEAU_FACTOR ** (len(losses) - next(worse, len(losses)))


def choose_precision(model: nn.Module, task: Task, examples: Examples, device: torch.device) -> str:
    """Return "bfloat16" where it makes this model's updates faster, else "float32".

    A GPU tells whether it has bfloat16. On a CPU the first batches are timed in both precisions, in
    turns, and their gradients thrown away.
    """
    if device.type == "cuda":
        native = torch.cuda.is_bf16_supported(including_emulation=False)
        return "bfloat16" if native else "float32"
    seconds: dict[str, list[float]] = {"float32": [], "bfloat16": []}
    single, unscaled = Ranks(device=device), torch.amp.GradScaler(device.type, enabled=False)
    config = replace(task.recipe.train, accumulate=1)
    updates = iter_updates(examples, task.recipe.data.longest, config, Place(), single)
    for data in islice(updates, 1 + TIMED_BATCHES):
        for precision, timed in seconds.items():
            start = time.perf_counter()
            loss_of = TokenLoss(model, task, precision)
            sum(backward(loss_of, data, unscaled, single, Watch())).item()
            model.zero_grad()
            timed.append(time.perf_counter() - start)
    times = {precision: median(timed[1:]) for precision, timed in seconds.items()}
    return "bfloat16" if times["float32"] >= SPEEDUP * times["bfloat16"] else "float32"


def overflow(loss: float, scaler: torch.amp.GradScaler) -> bool:
    """Return whether a smaller scale of the float16 loss may cure a gradient that is not finite."""
    return scaler.is_enabled() and math.isfinite(loss) and scaler.get_scale() > SMALLEST_SCALE


def stop_with_text(
    session: Session, data: UpdateBatches, losses: list[Tensor], loss: float, norm: float
) -> None:
    """Write this rank's share of a bad update as text, with each batch's loss; raise UserError."""
    run, update = session.run, session.progress.updates + 1
    batches = [
        {
            "loss": str(loss.item()),  # JSON has no nan
            "pairs": [
                {"pair": int(i), **as_text(session.examples[i], session.vocabularies)}
                for i in chosen
            ],
        }
        for loss, chosen in zip(losses, data.chosen, strict=True)
    ]
    path = inside(run, f"not-finite-{update:06d}-{session.ranks.rank}.json")
    replace_text(path, json.dumps(batches, indent=1, ensure_ascii=False))
    paths = session.ranks.gather(str(path))  # all are written before any rank leaves
    raise UserError(
        f"{run}: loss {loss / data.tokens:g}, gradient norm {norm:g} at update {update}, after "
        "others that were left out: go on from the last checkpoint with a lower train.lr or more "
        f"train.warmup in {run / 'recipe.yaml'}; the sentences are in {', '.join(paths)}"
    )


def as_text(ids: np.ndarray | tuple[np.ndarray, ...], vocabularies: Vocabularies) -> dict[str, str]:
    """Return the text of a pair by side, or of an excerpt."""
    if isinstance(ids, np.ndarray):
        return {"text": vocabularies.target.decode(ids)}
    source, target = ids
    return {
        "source": vocabularies.source.decode(source),
        "target": vocabularies.target.decode(target),
    }
