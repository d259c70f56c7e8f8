"""What a recipe needs before one buys it: parameters, memory, updates and hours.

Memory is that of training on one GPU, without validation. One batch runs forward and backward on
tensors that have no numbers, and whatever it allocates is added up. That needs no GPU: the CPU's
operators run, and `LikeGpu` mends the two differences that matter. PyTorch's account of real
batches on a CPU is the same, to the kilobyte; we have not compared it with a GPU's.
"""

import weakref
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from dynconv.config import Recipe
from dynconv.errors import UserError
from dynconv.models import build
from dynconv.text import Batch, Prepared, is_prepared, open_prepared
from dynconv.text.corpus import corpus_dir
from dynconv.train.data import Place, pools_of, stream, training_text
from dynconv.train.run import check_text, prepare_for
from dynconv.train.update import TokenLoss

GB = 1e9
RESERVED = 0.1
"""share of a GPU's memory for what is not counted: fragmentation, the CUDA context, libraries"""
KEPT = {"adam": (2, "AdamW's two moments"), "nag": (1, "the velocity")}
"""tensors as large as the weights that an optimizer keeps"""
TAIL = 1 / 8
"""share of the tokens in each band of an adaptive softmax but the first; by Zipf's law the two of
WikiText-103 have 9% and 12%"""
USUAL = 30
"""tokens of a sentence where the corpus is not known"""
MULTIPLE = 64
"""the largest batch_tokens that is proposed is a multiple of this"""
NOT_HERE = "not known: the corpus is not here (dynconv data prepare)"


def plan(recipe: Recipe, gpus: int, memory_gb: float, tokens_per_s: float | None) -> str:
    """The report, a line for each thing.

    gpus          that train together, at least 1
    memory_gb     of one GPU, in 1e9 bytes
    tokens_per_s  target tokens a second of one GPU, as `dynconv bench train` prints it, or None

    Raises UserError when the corpus is here but cannot be used.
    """
    config = recipe.train
    text = survey(recipe)
    usual, longest = recipe.data.block or USUAL, recipe.data.longest
    lengths = (text.usual, text.longest) if text else (usual, longest)
    traced = trace_all(recipe, config.batch_tokens, lengths)
    parameters = traced[0].parameters
    moments, keeps = KEPT[config.optimizer]
    fixed = (8 + 4 * moments) * parameters  # bytes: weights, gradients and moments in float32
    total = fixed + most(traced)
    room = (1 - RESERVED) * memory_gb * GB
    fits = "fits" if total <= room else "DOES NOT FIT"
    batches = config.accumulate * gpus
    rows = {
        "parameters": f"{parameters:,}",
        "weights": f"{4 * parameters / GB:.2f} GB, float32",
        "gradients": f"{4 * parameters / GB:.2f} GB, float32; DDP keeps no second copy of them",
        "optimizer": f"{4 * moments * parameters / GB:.2f} GB, {keeps}, float32",
        "activations": ", ".join(f"{each.bytes / GB:.2f} GB for {each.shape}" for each in traced)
        + f", {precision(recipe)}",
        "in all": f"{total / GB:.2f} GB on each GPU: {fits} into {memory_gb:g} GB, "
        f"{RESERVED:.0%} left for fragmentation and CUDA",
        "largest batch": largest(recipe, lengths, room - fixed, most(traced)),
        "one update": f"{config.batch_tokens * batches:,} tokens at most on either side "
        f"({config.batch_tokens:,} x {config.accumulate} x {gpus}), padding included",
        "FLOPs": f"{traced[0].flops * batches:.2e} an update at most, matrix products alone",
    }
    if text is None:
        rows |= dict.fromkeys(("target tokens", "epoch", "hours"), NOT_HERE)
    else:
        tokens = text.target_tokens / text.batches * batches
        about = "" if text.exact else "about "
        pieces = "pairs" if recipe.data.source else "excerpts"
        rows["target tokens"] = f"{tokens / batches:,.0f} a batch, {tokens:,.0f} an update (mean)"
        rows["epoch"] = (
            f"{about}{text.batches / batches:,.1f} updates: {text.pairs:,} {pieces} in {about}"
            f"{text.batches:,} batches; {config.updates:,} updates are {about}"
            f"{config.updates * batches / text.batches:,.1f} epochs"
        )
        rows["hours"] = hours(config.updates * tokens, gpus, tokens_per_s)
    return "\n".join(f"{name:<15}{value}" for name, value in rows.items())


def hours(tokens: float, gpus: int, tokens_per_s: float | None) -> str:
    """How long so many target tokens take."""
    if tokens_per_s is None:
        return "not measured: give --tokens-per-s; dynconv bench train RECIPE prints it"
    taken = tokens / (tokens_per_s * gpus) / 3600
    return f"{taken:,.1f} at {tokens_per_s:,.0f} target tokens/s a GPU, without validation"


class Text(NamedTuple):
    """What a corpus comes to: one epoch of it."""

    pairs: int
    """all but the too long ones"""
    batches: int
    target_tokens: int
    usual: int
    """mean tokens of a pair's longer side, <eos> included"""
    longest: int
    exact: bool
    """else counted in one pool of several"""


def survey(recipe: Recipe) -> Text | None:
    """The recipe's corpus in batches, prepared for the moment if need be; None if it is missing."""
    data = recipe.data
    try:
        directory = corpus_dir(data.corpus)
    except UserError:
        return None
    if is_prepared(directory):
        return count(open_prepared(directory, verify=False), recipe)
    with TemporaryDirectory() as folder:
        out = Path(folder) / "prepared"
        return count(prepare_for(recipe, out), recipe)


def count(corpus: Prepared, recipe: Recipe) -> Text:
    """The batches of the first epoch, or, when it has several pools, of the first one."""
    check_text(corpus, recipe)
    config, chosen = recipe.train, []
    text = training_text(corpus, recipe.data)
    batches = stream(text, recipe.data.longest, config, Place())
    for pairs, before, _ in batches:
        if before >= Place(epoch=0, pool=1):
            break
        chosen.append(pairs)
    lengths = text.lengths(np.concatenate(chosen))
    pools = len(pools_of(len(text), config.seed, 0))
    return Text(
        pairs=len(lengths) * pools,
        batches=len(chosen) * pools,
        target_tokens=int(lengths[:, 1].sum()) * pools,
        usual=round(lengths.max(1).mean()),
        longest=int(lengths.max()),
        exact=pools == 1,
    )


class Shape(NamedTuple):
    """A batch in which all sentences are equally long, on both sides."""

    sentences: int
    length: int

    def __str__(self) -> str:
        return f"{self.sentences} x {self.length} tokens"


class Traced(NamedTuple):
    shape: Shape
    parameters: int
    bytes: int
    """most that forward and backward hold at a time, beyond weights and their gradients"""
    flops: int
    """of the matrix products, forward and backward"""


def most(traced: list[Traced]) -> int:
    """The bytes of the batch that needs most."""
    return max(each.bytes for each in traced)


def trace_all(recipe: Recipe, batch_tokens: int, lengths: tuple[int, ...]) -> list[Traced]:
    """Full batches of sentences of these lengths; attention needs more the longer they are."""
    shortened = [min(length, batch_tokens) for length in lengths]
    return [trace(recipe, Shape(batch_tokens // length, length)) for length in shortened]


def trace(recipe: Recipe, shape: Shape) -> Traced:
    """Forward and backward of one batch; takes about a second and no memory, whatever the sizes.

    Up to one matrix V x C too much with a vast vocabulary and few tokens: the gradients of a shared
    embedding are added up in place, but not when they have no numbers.
    """
    with FakeTensorMode(), Live() as live, LikeGpu():
        model = build(recipe.model)
        # they are there in all but the first batch of an update, in DDP's buckets even then
        for parameter in model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        loss_of = TokenLoss(model, recipe.train.label_smoothing, precision(recipe))
        ids, places = torch.zeros(shape, dtype=torch.int64), torch.arange(shape[0] * shape[1])
        source = ids[:, :0] if recipe.data.source is None else ids
        batch = Batch(source, source.bool(), ids.clone(), places.clone(), places)
        before = live.peak = live.held
        with FlopCounterMode(display=False) as counter:
            loss_of(batch).backward()
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return Traced(shape, parameters, live.peak - before, counter.get_total_flops())


def precision(recipe: Recipe) -> str:
    """That of the recipe; auto will be bfloat16 on any recent GPU."""
    asked = recipe.train.precision
    return "bfloat16" if asked == "auto" else asked


class Live(TorchDispatchMode):
    """Adds up the bytes of all tensors that are alive, those without numbers included."""

    def __init__(self):
        super().__init__()
        self.held = self.peak = 0
        self.known: set[int] = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is torch.ops.aten._local_scalar_dense.default:
            return 0.0  # TaLK asks how far its windows reach: no further than they may
        if func is torch.ops.aten.nonzero.default:  # which targets are of a band
            mask = args[0]
            return torch.empty(round(mask.numel() * TAIL), mask.dim(), dtype=torch.int64)
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor):
                self.follow(tensor.untyped_storage())
        return result

    def follow(self, storage: torch.UntypedStorage) -> None:
        """Count a storage from now to its end; views share one."""
        if id(storage) not in self.known:
            self.known.add(id(storage))
            self.held += storage.nbytes()
            self.peak = max(self.peak, self.held)
            weakref.finalize(storage, self.forget, id(storage), storage.nbytes())

    def forget(self, name: int, size: int) -> None:
        self.known.remove(name)
        self.held -= size


class LikeGpu(TorchFunctionMode):
    """On a CPU, dropout and softmax that keep what a GPU's keep for the backward pass.

    Dropout on a GPU keeps a byte for each entry, on a CPU its factor; softmax under autocast
    becomes float32 on a GPU and stays as it is on a CPU.
    """

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func is F.dropout and kwargs["p"] > 0:
            return torch.native_dropout(args[0], kwargs["p"], kwargs["training"])[0]
        if func is Tensor.softmax and torch.is_autocast_enabled("cpu"):
            return func(args[0].float(), *args[1:], **kwargs)
        return func(*args, **kwargs)


def largest(recipe: Recipe, lengths: tuple[int, ...], room: float, used: int) -> str:
    """The most batch_tokens whose activations fit into `room` bytes, where the recipe's use `used`.

    They grow almost linearly: a straight line through two sizes, then downwards until it is true.
    """
    first = recipe.train.batch_tokens
    second = max(2 * first, int(first * room / used))
    slope = (most(trace_all(recipe, second, lengths)) - used) / (second - first)  # bytes a token
    size = int(first + (room - used) / slope) // MULTIPLE * MULTIPLE
    while size >= max(lengths):
        over = most(trace_all(recipe, size, lengths)) - room
        if over <= 0:
            return f"train.batch_tokens={size} fits, about"
        size -= max(1, int(over / slope / MULTIPLE)) * MULTIPLE
    return f"none fits that could hold the longest sentence, {max(lengths)} tokens"
