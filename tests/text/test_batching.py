"""Batches: the budget holds, nothing is lost or repeated, masks mark the padding."""

import numpy as np
import pytest
import torch

from dynconv.errors import UserError
from dynconv.text import EOS, PAD, Batch, Pairs, batch_by_length, collate_pairs

LENGTHS = [tuple(pair) for pair in np.random.default_rng(0).integers(0, 30, (500, 2)).tolist()]


@pytest.mark.parametrize("seed", [None, 1])
def test_every_pair_once_under_the_budget(seed):
    batches = batch_by_length(LENGTHS, 100, seed=seed)
    assert sorted(i for batch in batches for i in batch) == list(range(500))
    sizes = [len(batch) * max(max(LENGTHS[i]) for i in batch) for batch in batches]
    assert max(sizes) <= 100


def test_batches_are_full():
    assert [len(batch) for batch in batch_by_length([(5, 5)] * 10, 20)] == [4, 4, 2]


def test_empty_pairs_are_batched():
    assert [*map(list, batch_by_length([(0, 0), (0, 0), (3, 1)], 5))] == [[0, 1], [2]]
    assert [*map(list, batch_by_length([(0, 0)], 0))] == [[0]]


def test_batches_depend_only_on_the_seed():
    first, again, later, other = (
        [batch.tolist() for batch in batch_by_length(LENGTHS, 100, seed=seed)]
        for seed in [(1, 2), (1, 2), (1, 3), (2, 2)]
    )
    assert first == again
    assert first != later
    assert first != other


def test_batches_by_length_waste_little():
    batches = batch_by_length(LENGTHS, 300, seed=1)
    targets = [[LENGTHS[i][1] for i in batch] for batch in batches]
    padded = sum(len(t) * max(t) for t in targets)
    assert sum(map(sum, targets)) / padded > 0.9


def test_collate_pads_and_shifts():
    batch = collate_pairs([([5, 6], [7]), ([5], [8, 9])])
    assert batch.source.tolist() == [[5, 6, EOS], [5, EOS, PAD]]
    assert batch.prefix.tolist() == [[EOS, 7, PAD], [EOS, 8, 9]]
    assert batch.target.tolist() == [7, EOS, 8, 9, EOS]
    assert batch.target_positions.tolist() == [0, 1, 3, 4, 5]
    assert batch.source_pad_mask.dtype == torch.bool
    assert batch.source_pad_mask.tolist() == [[False] * 3, [False, False, True]]
    assert all(part.dtype == torch.int64 for part in (batch.source, batch.prefix, batch.target))


def test_a_sentence_over_the_budget_is_named():
    with pytest.raises(UserError, match="budget 30 must be at least 31, the tokens of the longest"):
        batch_by_length([(31, 2)], 30)
    assert batch_by_length([], 30) == []


@pytest.mark.parametrize("longest", [1, 2, 9])
def test_pairs_in_memory_are_those_of_the_lists(longest):
    lists = [([5, 6, 7], [8]), ([5], []), ([6, 7], [8, 9])]
    whole = Pairs.from_ids(lists)
    cut = Pairs(whole.tokens, whole.bounds, max_source_tokens=longest + 1)
    expected = [(source[:longest], target) for source, target in lists]
    assert [(s.tolist(), t.tolist()) for s, t in cut] == expected
    assert cut.lengths([2, 0]).tolist() == [[len(side) + 1 for side in expected[i]] for i in (2, 0)]
    batches = cut.batch([2, 0, 1]), collate_pairs([expected[i] for i in (2, 0, 1)])
    assert all(mine.equal(listed) for mine, listed in zip(*batches, strict=True))


def test_a_batch_of_no_pair_is_refused():
    with pytest.raises(ValueError, match="^max_examples 0 must be at least 1"):
        batch_by_length([(2, 2)], 9, max_examples=0)


def test_an_unpadded_batch_predicts_every_position():
    ids = torch.randint(3, 250, (2, 5))
    batch = Batch.unpadded(ids, ids)
    assert batch.target_positions.tolist() == list(range(10)) and len(batch.target) == 10
    assert not batch.source_pad_mask.any()
