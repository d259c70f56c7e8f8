"""The text of a run: memory-mapped for training, in memory for validation; and its batches."""

from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import NamedTuple, TypeVar

import numpy as np

from dynconv.config import DataConfig, TrainConfig
from dynconv.errors import UserError
from dynconv.text import (
    Batch,
    Excerpts,
    Pairs,
    Prepared,
    Vocabularies,
    buckets,
    load_parallel,
    read_lines,
)
from dynconv.text.corpus import find_split
from dynconv.train.ranks import Ranks

T = TypeVar("T")
Corpus = Pairs | Excerpts
"""what training reads: pairs, or a language model's excerpts"""

POOL = 1 << 20
"""pairs that are sorted by length at a time: this bounds memory, whatever the corpus"""
BLOCK = 1 << 10
"""a pool of a larger corpus is made of blocks of so many neighbours, which a disk reads at once"""


class Place(NamedTuple):
    """Where the stream stands: `batch` batches of this pool of this epoch are done."""

    epoch: int = 0
    pool: int = 0
    batch: int = 0


class Work(NamedTuple):
    """What one rank does for one update."""

    batches: list[Batch]
    chosen: list[np.ndarray]
    """the pairs in each batch"""
    seeds: list[int]
    """of the dropout masks of each batch"""
    tokens: int
    """to predict in this update, on all ranks together"""
    place: Place
    """where the stream stands after it"""


def works(
    corpus: Corpus, longest: int, config: TrainConfig, place: Place, ranks: Ranks
) -> Iterator[Work]:
    """The work of one rank, update after update, for ever.

    All ranks see one stream of batches and take their turns in it; an update is `accumulate` of
    them a rank. Dropout masks belong to the batch: N ranks do what one would do with N times
    `accumulate`.
    """
    batches = stream(corpus, longest, config, place)
    while True:
        everyone = list(islice(batches, config.accumulate * ranks.size))
        own = [(chosen, before) for chosen, before, _ in everyone[ranks.rank :: ranks.size]]
        yield Work(
            batches=[corpus.batch(chosen) for chosen, _ in own],
            chosen=[chosen for chosen, _ in own],
            seeds=[_seed(config.seed, before) for _, before in own],
            tokens=sum(int(corpus.lengths(chosen)[:, 1].sum()) for chosen, _, _ in everyone),
            place=everyone[-1][2],
        )


def _seed(seed: int, place: Place) -> int:
    return int(np.random.SeedSequence((seed, *place)).generate_state(1)[0])


def stream(
    corpus: Corpus, longest: int, config: TrainConfig, place: Place
) -> Iterator[tuple[np.ndarray, Place, Place]]:
    """(pairs of a batch, place before it, place after it), for ever.

    Pairs with a side of more than `longest` tokens, or more than the budget, are left out.

    The same seed and place give the same batches.
    """
    epoch, first, start = place
    seed, budget = config.seed, config.batch_tokens
    while True:
        pools = pools_of(len(corpus), seed, epoch)
        for pool in range(first, len(pools)):
            indices = np.concatenate([np.arange(*block) for block in pools[pool]])
            lengths = corpus.lengths(indices)
            fit = lengths.max(1) <= min(longest, budget)
            indices, lengths = indices[fit], lengths[fit]
            if not len(indices):
                raise UserError(
                    f"{corpus.directory}: no usable pair in split train: "
                    f"all have more than {min(longest, budget)} tokens "
                    "(data.max_tokens, train.batch_tokens)"
                )
            batches = buckets(lengths, budget, (seed, epoch, pool), config.batch_sentences)
            for i in range(start, len(batches)):
                yield indices[batches[i]], Place(epoch, pool, i), Place(epoch, pool, i + 1)
            start = 0
        epoch, first = epoch + 1, 0


def pools_of(pairs: int, seed: int, epoch: int) -> list[np.ndarray]:
    """The (start, end) of the blocks in each pool of an epoch; one block when all fit in a pool."""
    if pairs <= POOL:
        return [np.array([[0, pairs]])]
    starts = np.arange(0, pairs, BLOCK)
    blocks = np.stack([starts, np.minimum(starts + BLOCK, pairs)], axis=1)
    count = -(-pairs // POOL)
    order = np.random.default_rng((seed, epoch, count)).permutation(len(blocks))
    return [blocks[part] for part in np.array_split(order, count)]


def ahead(items: Iterator[T], depth: int = 2) -> Iterator[T]:
    """The same items; a thread makes the next ones while the current one is used."""
    with ThreadPoolExecutor(1) as worker:
        waiting = deque(worker.submit(next, items) for _ in range(depth))
        while True:
            yield waiting.popleft().result()
            waiting.append(worker.submit(next, items))


class HeldOut(NamedTuple):
    """A split to validate on, in memory."""

    text: Pairs | Excerpts
    references: list[str]
    """the target of each pair; none for a language model"""
    language: str
    """of the target"""


def training_text(corpus: Prepared, data: DataConfig) -> Corpus:
    """What training reads of a prepared corpus."""
    if not corpus.source:
        return Excerpts.of(corpus, data.block)
    return Pairs.of(corpus, data.max_source)


def held_out(corpus: Prepared, data: DataConfig, vocabularies: Vocabularies, split: str) -> HeldOut:
    """A split as ids: all of a language model's, or the pairs without a blank side."""
    where = corpus.directory
    if not corpus.source:
        lines = read_lines(find_split(where, f"{split}.{corpus.target}"))
        text = Excerpts.encode(lines, vocabularies.target, data.block, where)
        return HeldOut(text, [], corpus.target)
    text = load_parallel(str(where), corpus.source, corpus.target, split)
    sides = (v.encode(side) for v, side in zip(vocabularies, text, strict=True))
    every = zip(*sides, text.target, strict=True)
    most = data.max_source
    kept = [(source[:most], target, line) for source, target, line in every if source and target]
    if not kept:
        raise UserError(f"{where}: no pair in split {split} without a blank side")
    pairs = Pairs.from_ids((s, t) for s, t, _ in kept)
    return HeldOut(pairs, [line for _, _, line in kept], corpus.target)


def in_order(text: Pairs | Excerpts, budget: int) -> Iterator[tuple[np.ndarray, Batch]]:
    """(indices, batch) over all of it once; what is longer than the budget is alone."""
    lengths = text.lengths(range(len(text)))
    for chosen in buckets(lengths, max(budget, int(lengths.max()))):
        yield chosen, text.batch(chosen)
