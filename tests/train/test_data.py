"""The stream of batches: all pairs once an epoch, the same from any place, shared by ranks."""

from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
import torch

from dynconv.config import TrainConfig
from dynconv.tasks import task_of
from dynconv.train import data
from dynconv.train.data import DataPosition, epoch_pools, iter_batches, iter_updates, prefetch
from dynconv.train.distributed import World

CONFIG = TrainConfig(batch_tokens=400)


def share(rank: int, size: int) -> World:
    return World(rank, size, device=torch.device("cpu"))


def epoch(corpus, number: int, max_length: int = 256) -> list[int]:
    """The pairs of one epoch in the stream's order."""
    pairs = []
    for chosen, before, _ in iter_batches(corpus, max_length, CONFIG, DataPosition(number)):
        if before.epoch > number:
            return pairs
        pairs += chosen.tolist()


@pytest.fixture(params=["one pool", "five pools"])
def pooled(request, monkeypatch):
    """400 pairs in one pool, or in five of 80 made of blocks of 16."""
    if request.param == "five pools":
        monkeypatch.setattr(data, "EXAMPLES_PER_POOL", 80)
        monkeypatch.setattr(data, "EXAMPLES_PER_READ", 16)


def test_every_pair_once_an_epoch_in_another_order_each_time(pairs, pooled):
    first, second = epoch(pairs, 0), epoch(pairs, 1)
    assert sorted(first) == sorted(second) == list(range(len(pairs)))
    assert first != second


def test_a_pool_mixes_blocks_from_all_over(monkeypatch):
    monkeypatch.setattr(data, "EXAMPLES_PER_POOL", 1000)
    monkeypatch.setattr(data, "EXAMPLES_PER_READ", 10)
    pools = epoch_pools(10_004, 1, 0)
    assert len(pools) == 11
    assert all(np.ptp(pool) > 5000 for pool in pools)
    assert max(np.diff(pool).sum() for pool in pools) <= 1000


def test_the_same_place_gives_the_same_batches(pairs, pooled):
    seen = list(islice(iter_batches(pairs, 256, CONFIG, DataPosition()), 120))
    assert seen[-1][1].epoch >= 1
    for skip in (0, 7, 33, 90):
        place = seen[skip - 1][2] if skip else DataPosition()
        again = islice(iter_batches(pairs, 256, CONFIG, place), 30)
        for (chosen, *places), (same, *before) in zip(again, seen[skip:], strict=False):
            assert chosen.tolist() == same.tolist()
            assert places[1] == before[1]


def test_long_pairs_are_left_out(pairs):
    chosen = epoch(pairs, 0, max_length=20)
    lengths = pairs.lengths(np.arange(len(pairs))).max(1)
    assert sorted(chosen) == np.flatnonzero(lengths <= 20).tolist()
    assert 0 < len(chosen) < len(pairs)


def test_long_sources_are_cut(prepared, pairs, recipe):
    """In training, in validation, and before pairs that are too long are left out."""
    task = task_of(replace(recipe, data=replace(recipe.data, max_source_tokens=5)))
    text = task.training_examples(prepared)
    everything = np.arange(len(pairs))
    assert (text.lengths(everything)[:, 0] == pairs.lengths(everything)[:, 0].clip(max=5)).all()
    assert text.lengths(everything)[:, 0].max() == 5
    batch = text.batch([0, 1, 2])
    assert batch.source[:, :4].tolist() == [pairs[i][0][:4].tolist() for i in range(3)]
    assert all((text[i][1] == pairs[i][1]).all() for i in range(3))
    valid = task.encode_split(prepared, prepared.load_vocabularies(), "valid")
    assert {len(source) for source, _ in valid.examples} == {4}


@pytest.mark.parametrize("size", [2, 4])
def test_ranks_share_what_one_would_do_with_more_accumulation(pairs, recipe, size):
    few = replace(recipe.train, accumulate=2)
    alone = iter_updates(pairs, 256, replace(few, accumulate=2 * size), DataPosition(), share(0, 1))
    shares = [
        iter_updates(pairs, 256, few, DataPosition(), share(rank, size)) for rank in range(size)
    ]
    for _ in range(30):  # more than one epoch
        whole, parts = next(alone), [next(part) for part in shares]
        chosen = [
            c.tolist() for turn in zip(*(p.indices for p in parts), strict=True) for c in turn
        ]
        assert chosen == [c.tolist() for c in whole.indices]
        seeds = [seed for turn in zip(*(p.seeds for p in parts), strict=True) for seed in turn]
        assert seeds == whole.seeds and len(set(seeds)) == len(seeds)
        assert {p.tokens for p in parts} == {whole.tokens}
        assert {p.position for p in parts} == {whole.position}
        assert whole.tokens == sum(len(batch.target) for batch in whole.batches)


def test_what_is_made_ahead_is_the_same_and_its_errors_arrive():
    def items():
        yield from range(5)
        raise OSError("the disk is gone")

    assert list(prefetch(iter(range(5)))) == list(range(5))
    made = prefetch(items())
    assert list(islice(made, 5)) == list(range(5))
    with pytest.raises(OSError, match="gone"):
        next(made)
