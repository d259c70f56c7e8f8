"""Examples have the same lengths and the same order, by index and in an array of indices."""

import numpy as np
import pytest

from dynconv.text import Pairs
from dynconv.text.examples import Examples, Excerpts, excerpt_bounds

TOKENS = np.array([1, 5, 6, 7, 1, 8, 1, 1, 9, 5, 1])  # <eos>, then four lines that end in one
EOS_AT = np.flatnonzero(TOKENS == 1)
EXAMPLES = {
    "pairs": Pairs.from_ids([([5, 6, 7], [8]), ([5], []), ([6, 7], [8, 9])]),
    "pairs cut": Pairs.from_ids(
        [([5, 6, 7], [8]), ([5], []), ([6, 7], [8, 9])], max_source_tokens=3
    ),
    "lines": Excerpts(TOKENS, excerpt_bounds(EOS_AT, None)),
    "blocks": Excerpts(TOKENS, excerpt_bounds(EOS_AT, 4)),
}


def lengths(examples: Examples, i: int) -> list[int]:
    """The tokens to count in what example i is."""
    if isinstance(examples, Pairs):
        return [len(side) + 1 for side in examples[i]]  # <eos>
    return [0, len(examples[i]) - 1]  # the first is context


@pytest.mark.parametrize("name", EXAMPLES)
def test_lengths_are_those_of_the_examples_from_either_end(name):
    examples = EXAMPLES[name]
    total = len(examples)
    assert total > 2
    everything = range(-total, total)
    expected = [lengths(examples, i) for i in everything]
    assert examples.lengths(everything).tolist() == expected
    assert examples.lengths(np.array(everything)).tolist() == expected
    assert expected[:total] == expected[total:]
    assert examples.lengths([-1, 0]).tolist() == [expected[-1], expected[total]]


@pytest.mark.parametrize("name", EXAMPLES)
def test_no_example_has_an_index_beyond_the_ends(name):
    examples = EXAMPLES[name]
    for i in (len(examples), -len(examples) - 1):
        with pytest.raises(IndexError):
            examples[i]
        with pytest.raises(IndexError, match=f"the {len(examples)} examples"):
            examples.lengths([0, i])


@pytest.mark.parametrize("name", EXAMPLES)
def test_no_index_has_no_length(name):
    assert EXAMPLES[name].lengths([]).shape == (0, 2)
