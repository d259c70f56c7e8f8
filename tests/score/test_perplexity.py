"""Surprisal by windows and lines, and perplexity."""

import math

import numpy as np
import pytest
import torch

from dynconv.config import LanguageModelConfig, StackConfig
from dynconv.decode import token_nll
from dynconv.errors import UserError
from dynconv.models import build
from dynconv.score import Perplexity, perplexity
from dynconv.text import EOS

LINES = [[7, 3, 9, 2], [], [5], [4, 4, 8, 6, 11, 10, 3], [2, 9]]
STREAM = np.array([token for line in LINES for token in (*line, EOS)])


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    config = LanguageModelConfig(
        vocab_size=12,
        channels=8,
        ffn=8,
        heads=2,
        decoder=StackConfig(1, "attention"),  # it sees all that it is given
        cutoffs=(4, 8),
        div_value=2,
    )
    return build(config).double()


def direct(model, tokens, before=(EOS,)) -> np.ndarray:
    """-log p of tokens after some others, from one forward pass and the log-probabilities."""
    model.eval()
    ids = torch.tensor([*before, *tokens])
    logp = model(ids[None, :-1])[0, len(before) - 1 :]
    return -logp.gather(1, torch.tensor([*tokens])[:, None]).squeeze(1).detach().numpy()


@pytest.mark.parametrize("batch_tokens", [1, 12, 4096])
def test_lines_are_independent(model, batch_tokens):
    expected = np.concatenate([direct(model, [*line, EOS]) for line in LINES])
    nll = token_nll(model.train(), torch.from_numpy(STREAM), batch_tokens=batch_tokens)
    np.testing.assert_allclose(nll, expected, rtol=1e-12)


@pytest.mark.parametrize("context", [0, 3, 5])
@pytest.mark.parametrize("block", [1, 4, 7])
def test_windows_with_context(model, block, context):
    before = [EOS, *STREAM.tolist()]
    expected = [
        direct(model, STREAM[start : start + block], before[max(0, start - context) : start + 1])
        for start in range(0, len(STREAM), block)
    ]
    nll = token_nll(model, STREAM, block=block, context=context, batch_tokens=20)
    np.testing.assert_allclose(nll, np.concatenate(expected), rtol=1e-12)


def test_full_context_equals_one_pass(model):
    whole = direct(model, STREAM)
    np.testing.assert_allclose(token_nll(model, STREAM, block=3, context=99), whole, rtol=1e-12)
    np.testing.assert_allclose(token_nll(model, STREAM, block=99), whole, rtol=1e-12)


def test_no_text_has_no_nll(model):
    assert token_nll(model, STREAM[:0]).shape == token_nll(model, STREAM[:0], block=4).shape == (0,)


@pytest.mark.parametrize(
    "numbers", [{"block": 0}, {"block": 4, "context": -1}, {"batch_tokens": -5}]
)
def test_numbers_that_make_no_window_are_named(model, numbers):
    with pytest.raises(UserError, match=f" {min(numbers.values())} "):
        token_nll(model, STREAM, **numbers)


def test_perplexity_by_token_and_by_word():
    """Seven words and two <eos>, whatever the tokens: here 12 of 2 bits each."""
    result = perplexity(np.full(12, 2 * math.log(2)), ["a rose is\ta  rose ", "is it"])
    assert result == Perplexity(pytest.approx(24 * math.log(2)), tokens=12, words=9)
    assert result.per_token == pytest.approx(4)
    assert result.per_word == pytest.approx(2 ** (24 / 9))
    line = "perplexity = 6.35 per word, 4.00 per token  9 words with one <eos> per line, 12 tokens"
    assert str(result) == line


def test_perplexity_of_a_diverged_model():
    assert perplexity(np.array([1e6]), [""]).per_word == math.inf
    assert math.isnan(perplexity(np.array([math.nan]), [""]).per_token)


def test_nothing_to_score():
    with pytest.raises(UserError, match="0 lines"):
        perplexity(np.empty(0), [])
