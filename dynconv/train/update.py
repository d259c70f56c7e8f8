"""Makes one update: loss, gradients and, if these are finite, the optimizer's step.

The learning rate is decided in `config.schedules`.
"""

import math
from collections.abc import Callable
from contextlib import nullcontext
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from dynconv.config.schedules import learning_rate
from dynconv.tasks import Task
from dynconv.text import Batch
from dynconv.train.data import UpdateBatches
from dynconv.train.distributed import World
from dynconv.train.precision import AUTOCAST_DTYPES
from dynconv.train.session import Progress, Session
from dynconv.train.stopwatch import Stopwatch

SMALLEST_SCALE = 2.0**-10
"""an overflow is blamed on the float16 loss scale only while the scale is above this"""


class BatchLoss(nn.Module):
    """A task's loss of one batch, summed over its target tokens, as a module that DDP can wrap.

    Under autocast softmax, normalisation and loss are still computed in float32; on a CPU the first
    two are then rounded.
    """

    def __init__(self, model: nn.Module, task: Task, precision: str = "float32"):
        super().__init__()
        self.model, self.task, self.precision = model, task, precision

    def forward(self, batch: Batch) -> Tensor:
        dtype = AUTOCAST_DTYPES.get(self.precision)
        device = batch.prefix.device
        with torch.autocast(device.type, dtype) if dtype else nullcontext():
            return self.task.loss(self.model, batch)


class UpdateStats(NamedTuple):
    """The statistics of one update."""

    loss: float
    """the loss, summed over the target tokens of all ranks"""
    tokens: int
    lr: float
    grad_norm: float
    """norm of the gradient before clipping"""
    loss_scale: float
    """factor of the loss in float16"""
    stop: bool
    """whether any rank has received a signal to stop"""


class SkippedUpdate(NamedTuple):
    """An update that left the weights as they were: its loss or gradient is not finite."""

    mean_loss: float
    """the loss per target token of all ranks"""
    grad_norm: float
    loss_scale: float
    losses: list[Tensor]
    """losses of the batches of this rank"""


def make_update(
    session: Session, update: UpdateBatches, pending_signal: Callable[[], int]
) -> UpdateStats | SkippedUpdate:
    """Change the weights by one step of the optimizer, if loss and gradient are finite.

    `pending_signal` returns the signal that this process has received, or 0.
    """
    config, world = session.recipe.train, session.world
    optimizer, scaler = session.optimizer, session.scaler
    lr = learning_rate(
        config, session.progress.updates, [validation.loss for validation in session.history]
    )
    for group in optimizer.param_groups:
        group["lr"] = lr
    # With several ranks, gradients stay in the buckets that DDP exchanges.
    optimizer.zero_grad(set_to_none=world.size == 1)
    losses = accumulate_gradients(session.loss_module, update, scaler, world, session.stopwatch)
    scaler.unscale_(optimizer)
    total_norm = nn.utils.clip_grad_norm_(session.model.parameters(), config.clip_norm or math.inf)
    # The signal is summed in the same collective, so that all ranks stop after the same update.
    local_loss = torch.stack(losses).double().sum()
    # Here the CPU waits for a GPU, once per update. What follows depends on these numbers: whether
    # the weights change, the next learning rate, whether a checkpoint is due or training ends. To
    # read them one update late, all of that would need to know an update that is still unknown. It
    # would save a GPU only the time from here to the first kernel of the next forward pass.
    loss, stop, grad_norm = world.sum_over_ranks(
        local_loss, pending_signal(), replicated=[total_norm]
    )
    loss_scale = scaler.get_scale()
    result: UpdateStats | SkippedUpdate
    if math.isfinite(loss + grad_norm):
        scaler.step(optimizer)
        session.progress = Progress(session.progress.updates + 1, update.position)
        session.skipped_in_a_row = 0
        result = UpdateStats(loss, update.tokens, lr, grad_norm, loss_scale, bool(stop))
    else:
        if not smaller_scale_may_help(loss, scaler):
            session.skipped_in_a_row += 1
        result = SkippedUpdate(loss / update.tokens, grad_norm, loss_scale, losses)
    scaler.update()
    session.stopwatch.lap("optimizer")
    return result


def accumulate_gradients(
    loss_module: nn.Module,
    update: UpdateBatches,
    scaler: torch.amp.GradScaler,
    world: World,
    watch: Stopwatch,
) -> list[Tensor]:
    """Run the model forward and backward, and accumulate the gradients of the mean loss per token.

    The mean is taken over all batches of the update on all ranks. The loss is a sum over tokens,
    divided once by the number of tokens of the whole update, so that many small batches on many
    ranks give the gradient of one large batch. `loss_module` is a BatchLoss that `world` has
    wrapped. Returns the losses of this rank's batches.
    """
    losses = []
    for i, (batch, seed) in enumerate(zip(update.batches, update.seeds, strict=True), 1):
        torch.manual_seed(seed)
        # Gradients are exchanged once, in the backward pass of the last batch.
        exchange = world.size == 1 or i == len(update.batches)
        with nullcontext() if exchange else cast(DistributedDataParallel, loss_module).no_sync():
            loss = loss_module(batch.to(world.device))
            watch.lap("forward")
            # DistributedDataParallel takes the mean over ranks, hence times their number.
            scaler.scale(loss * (world.size / update.tokens)).backward()
            watch.lap("backward")
        losses.append(loss.detach())
    return losses


def smaller_scale_may_help(loss: float, scaler: torch.amp.GradScaler) -> bool:
    """Return whether a smaller scale of the float16 loss may make the gradient finite."""
    return scaler.is_enabled() and math.isfinite(loss) and scaler.get_scale() > SMALLEST_SCALE
