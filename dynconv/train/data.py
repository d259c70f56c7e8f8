"""Yields the batches of training: in order, from any position, for each rank."""

from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import NamedTuple, TypeVar

import numpy as np

from dynconv.config import TrainConfig
from dynconv.errors import UserError
from dynconv.text import Batch, Examples, batch_by_length
from dynconv.train.distributed import World

Item = TypeVar("Item")

EXAMPLES_PER_POOL = 1 << 20
"""the number of examples that are sorted by length at a time, which bounds memory"""
EXAMPLES_PER_READ = 1 << 10
"""the number of examples in a row that are read at once from a larger corpus, which is faster on
disks"""


class DataPosition(NamedTuple):
    """A position in the stream of batches: after the first `batch` batches of a pool."""

    epoch: int = 0
    pool: int = 0
    batch: int = 0


class UpdateBatches(NamedTuple):
    """One rank's share of an update: the batches that it processes."""

    batches: list[Batch]
    indices: list[np.ndarray]
    """indices of the examples in each batch"""
    seeds: list[int]
    """seeds of the dropout masks of each batch"""
    tokens: int
    """target tokens of this update on all ranks together"""
    position: DataPosition
    """the position from which to resume after this update"""


def iter_updates(
    examples: Examples, limit: int, config: TrainConfig, position: DataPosition, world: World
) -> Iterator[UpdateBatches]:
    """Yield the batches of one optimizer update at a time, forever, starting at `position`.

    Every rank iterates over the same stream of batches and keeps its own share of it,
    `config.accumulate` batches per update. So N ranks compute the same updates as one rank with N
    times `accumulate`. Dropout masks are seeded per batch for the same reason.
    """
    stream = iter_batches(examples, limit, config, position)
    while True:
        of_all_ranks = list(islice(stream, config.accumulate * world.size))
        of_this_rank = of_all_ranks[world.rank :: world.size]
        target_tokens = (examples.lengths(indices)[:, 1].sum() for indices, _, _ in of_all_ranks)
        yield UpdateBatches(
            batches=[examples.batch(indices) for indices, _, _ in of_this_rank],
            indices=[indices for indices, _, _ in of_this_rank],
            seeds=[dropout_seed(config.seed, before) for _, before, _ in of_this_rank],
            tokens=int(sum(target_tokens)),
            position=of_all_ranks[-1][2],
        )


def dropout_seed(seed: int, position: DataPosition) -> int:
    return int(np.random.SeedSequence((seed, *position)).generate_state(1)[0])


def iter_batches(
    examples: Examples, limit: int, config: TrainConfig, position: DataPosition
) -> Iterator[tuple[np.ndarray, DataPosition, DataPosition]]:
    """Yield (indices of the examples in a batch, position before it, position after it), forever.

    The same seed and position give the same batches. Examples with a side of more than `limit`
    tokens are left out (see `count_too_long`); raises UserError if none is left.
    """
    epoch, first, start = position
    seed, budget = config.seed, config.batch_tokens
    while True:
        pools = epoch_pools(len(examples), seed, epoch)
        usable = first > 0
        for pool in range(first, len(pools)):
            indices = np.concatenate([np.arange(*block) for block in pools[pool]])
            lengths = examples.lengths(indices)
            fit = lengths.max(1) <= limit
            indices, lengths = indices[fit], lengths[fit]
            if not len(indices):
                continue
            usable = True
            batches = batch_by_length(lengths, budget, (seed, epoch, pool), config.batch_sentences)
            for i in range(start, len(batches)):
                before, after = (DataPosition(epoch, pool, n) for n in (i, i + 1))
                yield indices[batches[i]], before, after
            start = 0
        if not usable:
            raise UserError(
                f"{examples.directory}: no usable example in split train: "
                f"all have more than {limit} tokens (data.max_example_tokens, train.batch_tokens)"
            )
        epoch, first = epoch + 1, 0


def count_too_long(examples: Examples, limit: int) -> int:
    """Count the examples with a side of more than `limit` tokens."""
    count = len(examples)
    pools = (
        np.arange(start, min(start + EXAMPLES_PER_POOL, count))
        for start in range(0, count, EXAMPLES_PER_POOL)
    )
    return sum(int((examples.lengths(pool).max(1) > limit).sum()) for pool in pools)


def epoch_pools(examples: int, seed: int, epoch: int) -> list[np.ndarray]:
    """Return the (start, end) of the blocks in each pool of an epoch, given the number of examples.

    Pools are sorted by length and cut into batches one after another. A corpus that fits in one
    pool is a single block; the blocks of a larger one are assigned to its pools at random.
    """
    if examples <= EXAMPLES_PER_POOL:
        return [np.array([[0, examples]])]
    starts = np.arange(0, examples, EXAMPLES_PER_READ)
    blocks = np.stack([starts, np.minimum(starts + EXAMPLES_PER_READ, examples)], axis=1)
    count = -(-examples // EXAMPLES_PER_POOL)
    order = np.random.default_rng((seed, epoch, count)).permutation(len(blocks))
    return [blocks[part] for part in np.array_split(order, count)]


def prefetch(items: Iterator[Item]) -> Iterator[Item]:
    """Yield the same items; a thread prepares the next two while the current one is in use.

    Processes would gain little: with the thread, an update of help-de-en-dynamic on a CPU waits for
    its batches in 0.5% of its time (data/results/loop.json).
    """
    with ThreadPoolExecutor(1) as worker:
        waiting = deque(worker.submit(list, islice(items, 1)) for _ in range(2))
        while item := waiting.popleft().result():  # [] after the last one
            yield from item
            waiting.append(worker.submit(list, islice(items, 1)))
