"""Pairs of ids for training and validation, and the stream of batches."""

from collections.abc import Iterator
from typing import NamedTuple

from dynconv.config import DataConfig, Recipe
from dynconv.errors import UserError
from dynconv.text import BPE, Batch, buckets, collate, load_parallel
from dynconv.text.batching import Pair


class Place(NamedTuple):
    """Where the stream stands: `batch` batches of this epoch are done."""

    epoch: int = 0
    batch: int = 0


def learn_bpe(recipe: Recipe) -> BPE:
    """The joint vocabulary of both languages, learned on the training split only."""
    text = load_parallel(recipe.data.corpus, recipe.data.source, recipe.data.target, "train")
    return BPE.learn([*text.source, *text.target], recipe.model.vocab_size)


def load_pairs(data: DataConfig, bpe: BPE, split: str, longest: int | None = None) -> list[Pair]:
    """The pairs of a split as ids, without those with a blank or, beyond `longest`, long side."""
    text = load_parallel(data.corpus, data.source, data.target, split)
    pairs = zip(bpe.encode(text.source), bpe.encode(text.target), strict=True)
    limit = float("inf") if longest is None else longest
    kept = [(s, t) for s, t in pairs if s and t and max(len(s), len(t)) + 1 <= limit]
    if not kept:
        raise UserError(
            f"{data.corpus}: no usable pair in split {split}: "
            f"all have a blank side or more than {longest} tokens"
        )
    return kept


def lengths_of(pairs: list[Pair]) -> list[tuple[int, int]]:
    """(source, target) tokens of each pair, <eos> included."""
    return [(len(s) + 1, len(t) + 1) for s, t in pairs]


def stream(pairs: list[Pair], budget: int, seed: int, place: Place) -> Iterator[tuple]:
    """(batch, place after it), for ever; the same seed and place give the same batches."""
    lengths = lengths_of(pairs)
    epoch, start = place
    while True:
        batches = buckets(lengths, budget, seed=seed, epoch=epoch)
        for i in range(start, len(batches)):
            yield collate([pairs[j] for j in batches[i]]), Place(epoch, i + 1)
        epoch, start = epoch + 1, 0


def in_order(pairs: list[Pair], budget: int) -> Iterator[tuple[list[int], Batch]]:
    """(indices, batch) over all pairs once; one that is longer than the budget is alone."""
    lengths = lengths_of(pairs)
    for chosen in buckets(lengths, max(budget, *map(max, lengths))):
        yield chosen, collate([pairs[i] for i in chosen])
