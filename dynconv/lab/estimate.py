"""`dynconv estimate`: computes the parameters, memory, updates and hours of a training run.

To estimate the memory on one GPU, one batch runs forward and backward on fake tensors
(gpu_memory.py). This needs no GPU.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode

from dynconv.config import Recipe
from dynconv.config.optimizers import OPTIMIZERS
from dynconv.lab.epoch import measure_epoch
from dynconv.lab.gpu_memory import ATTENTION_FLOPS, AllocationTracker, gpu_memory
from dynconv.models import build
from dynconv.models.activation_checkpointing import set_activation_checkpointing
from dynconv.tasks import task_of
from dynconv.train.update import BatchLoss

GB = 1e9
"""the number of bytes in a gigabyte"""
RESERVED = 0.1
"""share of a GPU's memory for fragmentation, the CUDA context and libraries"""
ASSUMED_LENGTH = 30
"""tokens assumed per sentence when the corpus is not here"""
MULTIPLE = 64
"""the unit of proposed batch sizes, in tokens: they are multiples of it"""
NOT_HERE = "not known: the corpus is not here (dynconv data prepare)"


def estimate_costs(recipe: Recipe, gpus: int, memory_gb: float, tokens_per_s: float | None) -> str:
    """Return the report, one line per quantity.

    gpus          the number of GPUs that train together, at least 1
    memory_gb     memory of one GPU, in units of 1e9 bytes
    tokens_per_s  target tokens per second of one GPU, as `dynconv bench train` prints it, or None

    Raises UserError when the corpus is here but cannot be used.
    """
    config = recipe.train
    epoch = measure_epoch(recipe)
    if epoch:
        lengths = epoch.mean_length, epoch.longest
    else:
        lengths = recipe.data.block_size or ASSUMED_LENGTH, recipe.example_limit
    costs = batch_costs(recipe, config.batch_tokens, lengths)
    parameters = costs[0].parameters
    activations = max(cost.bytes for cost in costs)
    optimizer = OPTIMIZERS[config.optimizer]
    moments, moments_in_words = len(optimizer.moments), optimizer.moments_in_words
    fixed = (8 + 4 * moments) * parameters  # bytes: weights, gradients and moments in float32
    total = fixed + activations
    room = (1 - RESERVED) * memory_gb * GB
    fits = "fits" if total <= room else "DOES NOT FIT"
    batches = config.accumulate * gpus
    rows = {
        "parameters": f"{parameters:,}",
        "weights": f"{4 * parameters / GB:.2f} GB, float32",
        "gradients": f"{4 * parameters / GB:.2f} GB, float32; DDP keeps no second copy of them",
        "optimizer": f"{4 * moments * parameters / GB:.2f} GB, {moments_in_words}, float32",
        "activations": ", ".join(f"{cost.bytes / GB:.2f} GB for {cost.shape}" for cost in costs)
        + f", {assumed_precision(recipe)}",
        "in all": f"{total / GB:.2f} GB on each GPU: {fits} into {memory_gb:g} GB, "
        f"{RESERVED:.0%} left for fragmentation and CUDA",
        "largest batch": propose_batch(recipe, lengths, room - fixed, activations),
        "one update": f"{config.batch_tokens * batches:,} tokens at most on either side "
        f"({config.batch_tokens:,} x {config.accumulate} x {gpus}), padding included",
        "FLOPs": f"{costs[0].flops * batches:.2e} per update at most, matrix products alone",
    }
    if epoch is None:
        rows |= dict.fromkeys(("target tokens", "epoch", "hours"), NOT_HERE)
    else:
        per_batch = epoch.target_tokens / epoch.batches
        tokens = per_batch * batches
        about = "" if epoch.exact else "about "
        rows["target tokens"] = f"{per_batch:,.0f} per batch, {tokens:,.0f} per update (mean)"
        rows["epoch"] = (
            f"{about}{epoch.batches / batches:,.1f} updates: {epoch.examples:,} "
            f"{task_of(recipe).unit} in {about}{epoch.batches:,} batches; {config.updates:,} "
            f"updates are {about}{config.updates * batches / epoch.batches:,.1f} epochs"
        )
        rows["hours"] = format_hours(config.updates * tokens, gpus, tokens_per_s)
    return "\n".join(f"{name:<15}{value}" for name, value in rows.items())


def format_hours(tokens: float, gpus: int, tokens_per_s: float | None) -> str:
    """Return how many hours it takes to train on `tokens` target tokens, as text."""
    if tokens_per_s is None:
        return "not measured: give --tokens-per-s; dynconv bench train RECIPE prints it"
    duration = tokens / (tokens_per_s * gpus) / 3600
    return f"{duration:,.1f} at {tokens_per_s:,.0f} target tokens/s per GPU, without validation"


class BatchShape(NamedTuple):
    """The shape of a batch whose sentences all have the same length, on both sides."""

    sentences: int
    length: int

    def __str__(self) -> str:
        return f"{self.sentences} x {self.length} tokens"


@dataclass(frozen=True)
class BatchCost:
    """The memory and arithmetic of forward and backward for one batch.

    Each number is counted when it is first read, with the settings of that moment. That takes about
    a second and no memory, whatever the sizes. With a vast vocabulary and few tokens the bytes can
    be one V x C matrix too high: real gradients of a shared embedding are added in place, fake ones
    are not.
    """

    recipe: Recipe
    shape: BatchShape

    @cached_property
    def parameters(self) -> int:
        with FakeTensorMode():
            return sum(parameter.numel() for parameter in build(self.recipe.model).parameters())

    @cached_property
    def bytes(self) -> int:
        """The peak of memory, beyond weights and their gradients."""
        with fake_batch(self.recipe, self.shape) as (loss, live):
            before = live.peak = live.held
            loss().backward()
            return live.peak - before

    @cached_property
    def flops(self) -> int:
        """The FLOPs of the matrix products."""
        # A pass of its own, because the counter keeps alive what blocks compute a second time.
        counter = FlopCounterMode(display=False, custom_mapping=ATTENTION_FLOPS)
        with fake_batch(self.recipe, self.shape) as (loss, _), counter:
            loss().backward()
        return counter.get_total_flops()


def peak_bytes(recipe: Recipe, batch_tokens: int, lengths: tuple[int, ...]) -> int:
    """Return the most bytes that a full batch needs, over these lengths of sentences."""
    return max(cost.bytes for cost in batch_costs(recipe, batch_tokens, lengths))


def batch_costs(recipe: Recipe, batch_tokens: int, lengths: tuple[int, ...]) -> list[BatchCost]:
    """Return the costs of full batches of sentences, one for each length.

    Several lengths matter because attention needs more memory for fewer, longer sentences. Equal
    lengths, as in a language model, are computed once.
    """
    shortened = dict.fromkeys(min(length, batch_tokens) for length in lengths)
    return [BatchCost(recipe, BatchShape(batch_tokens // n, n)) for n in shortened]


@contextmanager
def fake_batch(
    recipe: Recipe, shape: BatchShape
) -> Iterator[tuple[Callable[[], Tensor], AllocationTracker]]:
    """Make a model and a batch of fake tensors: yield the batch's loss, and what is allocated."""
    precision = assumed_precision(recipe)
    if precision == "float16":  # takes as much memory on a GPU, but has no C kernels on a CPU
        precision = "bfloat16"
    with FakeTensorMode(), AllocationTracker() as live, gpu_memory(precision):
        model = build(recipe.model)
        set_activation_checkpointing(model, recipe.train.checkpoint_activations)
        # Gradients exist in all but the first batch of an update, and with DDP even then.
        for parameter in model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        task = task_of(recipe)
        loss_module = BatchLoss(model, task, precision)
        batch = task.unpadded_batch(torch.zeros(shape, dtype=torch.int64))
        yield lambda: loss_module(batch), live


def assumed_precision(recipe: Recipe) -> str:
    """Return the recipe's precision; "auto" counts as bfloat16, which any recent GPU has."""
    precision = recipe.train.precision
    return "bfloat16" if precision == "auto" else precision


def propose_batch(recipe: Recipe, lengths: tuple[int, ...], room: float, used: int) -> str:
    """Return, as text, the largest batch_tokens whose activations fit into `room` bytes.

    used  bytes of activations with the recipe's own batch_tokens

    Activations grow almost linearly, so a straight line through two sizes gives the first guess.
    The guess is then lowered until it fits.
    """
    first = recipe.train.batch_tokens
    second = max(2 * first, int(first * room / used))
    more = peak_bytes(recipe, second, lengths)
    slope = (more - used) / (second - first)  # bytes per token
    size = int(first + (room - used) / slope) // MULTIPLE * MULTIPLE
    while size >= max(lengths):
        excess = peak_bytes(recipe, size, lengths) - room
        if excess <= 0:
            return f"train.batch_tokens={size} fits, about"
        size -= max(1, int(excess / slope / MULTIPLE)) * MULTIPLE
    return f"none fits that could hold the longest sentence, {max(lengths)} tokens"
