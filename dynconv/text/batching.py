"""Token-budget batches: sentences of similar length together, padding at the end."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from dynconv.errors import UserError
from dynconv.text.bpe import EOS, PAD

Pair = tuple[Sequence[int], Sequence[int]]


class Batch(NamedTuple):
    """Ids (B, S) and (B, T), int64; the masks are bool, True where padding."""

    source: Tensor
    source_pad: Tensor
    prefix: Tensor
    """the decoder's input: <eos>, then the target"""
    target: Tensor
    """what it must predict: the target, then <eos>"""
    target_pad: Tensor

    def to(self, device: torch.device) -> "Batch":
        """The same batch on a device."""
        return Batch(*(part.to(device) for part in self))


def pad(sequences: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Sequences as one (B, T) int64 tensor with PAD at the end, and its bool mask."""
    lengths = torch.tensor([len(s) for s in sequences])
    width = int(lengths.max())
    ids = torch.tensor([[*s, *[PAD] * (width - len(s))] for s in sequences], dtype=torch.int64)
    return ids, torch.arange(width) >= lengths[:, None]


def collate(pairs: Sequence[Pair]) -> Batch:
    """A batch of pairs of ids without <eos>; it is added to the source's end, too."""
    source, source_pad = pad([[*s, EOS] for s, _ in pairs])
    prefix, _ = pad([[EOS, *t] for _, t in pairs])
    target, target_pad = pad([[*t, EOS] for _, t in pairs])
    return Batch(source, source_pad, prefix, target, target_pad)


def buckets(
    lengths: Sequence[tuple[int, int]], budget: int, *, seed: int | None = None, epoch: int = 0
) -> list[list[int]]:
    """Indices of the pairs in each batch; each pair stands in exactly one.

    lengths  (source, target) tokens of each pair, <eos> included
    budget   most tokens, padding included, on either side of a batch
    seed     None: in order of length. Otherwise ties of length, and the batches' order, are
             drawn from (seed, epoch): the same two numbers give the same batches

    Raises UserError when a pair alone is over the budget.
    """
    if not lengths:
        return []
    length = np.asarray(lengths).reshape(-1, 2)
    longest = int(length.max())
    if longest > budget:
        raise UserError(f"a sentence of {longest} tokens exceeds the budget of {budget} a batch")
    generator = None if seed is None else np.random.default_rng((seed, epoch))
    ties = np.arange(len(length)) if generator is None else generator.permutation(len(length))
    order = ties[np.lexsort((length[ties, 0], length[ties, 1]))]
    batches, batch, widest = [], [], 0
    for i in order.tolist():
        widest = max(widest, int(length[i].max()))
        if batch and widest * (len(batch) + 1) > budget:
            batches.append(batch)
            batch, widest = [], int(length[i].max())
        batch.append(i)
    batches.append(batch)
    if generator is not None:
        generator.shuffle(batches)
    return batches
