"""Groups examples of similar length into padded batches within a token budget."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from dynconv.errors import UserError
from dynconv.text.vocabulary import EOS, PAD
from dynconv.value_checks import check_positive

Ids = Sequence[int] | np.ndarray
Pair = tuple[Ids, Ids]


class Batch(NamedTuple):
    """A batch of B examples, whose N target tokens come one after another, without padding."""

    source: Tensor
    """ids (B, S) int64; S is 0 in a language model's batch"""
    source_pad_mask: Tensor
    """(B, S) bool, True at padding"""
    prefix: Tensor
    """the decoder's input (B, T) int64: <eos>, then the target"""
    target: Tensor
    """tokens to predict (N,) int64, sentence after sentence: the target, then <eos>"""
    target_positions: Tensor
    """positions (N,) int64 of those tokens among the B x T positions of `prefix`"""

    @classmethod
    def unpadded(cls, source: Tensor, target: Tensor) -> "Batch":
        """Return a batch of ids (B, S) and (B, T) without padding; its prefixes are its targets."""
        no_padding = torch.zeros_like(source, dtype=torch.bool)
        return cls(source, no_padding, target, target.flatten(), torch.arange(target.numel()))

    def to(self, device: torch.device) -> "Batch":
        """Copy the batch to a device; to a GPU, without waiting for the copy."""
        if device.type == "cuda":
            return Batch(*(part.pin_memory().to(device, non_blocking=True) for part in self))
        return Batch(*(part.to(device) for part in self))


def pad_sequences(
    sequences: Sequence[Ids], *, eos_before: bool = False, eos_after: bool = False
) -> tuple[Tensor, Tensor]:
    """Return sequences as one (B, T) int64 tensor, padded at the end, and its mask (B, T).

    The mask is True at padding. With `eos_before` or `eos_after`, each sequence begins or ends
    with an additional <eos>.
    """
    lengths = np.array([len(s) for s in sequences])[:, None]
    start = int(eos_before)
    end = start + lengths
    column = np.arange(start + int(lengths.max()) + eos_after)
    ids = np.full((len(sequences), len(column)), PAD)
    ids[(column >= start) & (column < end)] = np.concatenate(sequences)
    ids[:, :start] = EOS
    if eos_after:
        ids[column == end] = EOS
    return torch.from_numpy(ids), torch.from_numpy(column >= end + eos_after)


def collate_pairs(pairs: Sequence[Pair]) -> Batch:
    """Turn pairs of ids into a batch, with <eos> appended to source and target."""
    source, source_pad_mask = pad_sequences([s for s, _ in pairs], eos_after=True)
    targets = [t for _, t in pairs]
    prefix, _ = pad_sequences(targets, eos_before=True)
    target, target_pad_mask = pad_sequences(targets, eos_after=True)
    positions = torch.from_numpy(np.flatnonzero(~target_pad_mask.numpy()))
    return Batch(source, source_pad_mask, prefix, target.flatten()[positions], positions)


def collate_excerpts(excerpts: Sequence[Ids]) -> Batch:
    """Turn excerpts, each with the token before it, into a batch without a source."""
    prefix, _ = pad_sequences([ids[:-1] for ids in excerpts])
    target, target_pad_mask = pad_sequences([ids[1:] for ids in excerpts])
    positions = torch.from_numpy(np.flatnonzero(~target_pad_mask.numpy()))
    no_source = prefix[:, :0]
    return Batch(no_source, no_source.bool(), prefix, target.flatten()[positions], positions)


def batch_by_length(
    lengths: Sequence[tuple[int, int]] | np.ndarray,
    budget: int,
    seed: int | Sequence[int] | None = None,
    max_examples: int | None = None,
) -> list[np.ndarray]:
    """Group examples of similar length into batches; return the indices of those in each batch.

    lengths       (N, 2) tokens of source and target of each example, <eos> included; texts without
                  a source have 0 there
    budget        maximum tokens of either side of a batch, padding included
    seed          shuffles the batches, and examples of equal length; None: batches in order of
                  length
    max_examples  maximum examples per batch; None: as many as fit

    Raises UserError when a single example exceeds the budget, and ValueError for max_examples
    below 1.
    """
    if max_examples is not None:
        check_positive("max_examples", max_examples)
    if not len(lengths):
        return []
    lengths = np.asarray(lengths)
    longest = int(lengths.max())
    if longest > budget:
        raise UserError(
            f"budget {budget} must be at least {longest}, the tokens of the longest sentence"
        )
    generator = None if seed is None else np.random.default_rng(seed)
    ties = np.arange(len(lengths)) if generator is None else generator.permutation(len(lengths))
    order = ties[np.lexsort((lengths[ties, 0], lengths[ties, 1]))]
    longer = lengths[order].max(1)
    batches, start = [], 0
    while start < len(order):
        # An upper bound: the first example alone is as wide.
        fit = max(1, budget) // max(1, longer[start])
        ahead = longer[start : start + min(fit, max_examples or fit)]
        area = np.maximum.accumulate(ahead) * np.arange(1, len(ahead) + 1)
        end = start + int(np.searchsorted(area, budget, side="right"))
        batches.append(order[start:end])
        start = end
    if generator is not None:
        generator.shuffle(batches)
    return batches
