"""Constraints on a search: against slow definitions, and in the search."""

from itertools import pairwise, product

import pytest
import torch
from helpers.translators import stepwise

from dynconv.config import Seq2SeqConfig, StackConfig
from dynconv.decode import beam_search
from dynconv.decode.constraints import at_least, no_repeat
from dynconv.models import build
from dynconv.text import EOS, PAD, pad_sequences

BLOCKED = -torch.inf


@pytest.fixture
def model():
    torch.manual_seed(5)
    stack = StackConfig(1, "light", 3)
    config = Seq2SeqConfig(vocab_size=6, channels=8, ffn=8, heads=2, encoder=stack, decoder=stack)
    return build(config).eval()


def ngrams(ids, n):
    return [tuple(ids[i : i + n]) for i in range(len(ids) - n + 1)]


def repeats(ids, n):
    return len(set(ngrams(ids, n))) < len(ngrams(ids, n))


@pytest.mark.parametrize("length", range(9))
@pytest.mark.parametrize("n", [1, 2, 3])
def test_no_repeat_by_definition(n, length):
    torch.manual_seed(length)
    V = 5
    prefixes = torch.randint(2, V, (3, 4, length))
    logp = torch.randn(3, 4, V)
    logp[0, 0, 4] = BLOCKED  # it was blocked before
    found = no_repeat(n)(logp.clone(), prefixes)
    for b, h, token in product(range(3), range(4), range(V)):
        ids = prefixes[b, h].tolist()
        new = (*ids, token)[-n:]
        again = token != EOS and len(new) == n and new in ngrams(ids, n)
        assert found[b, h, token] == (BLOCKED if again else logp[b, h, token])


def test_no_repeat_of_no_token_is_refused():
    with pytest.raises(ValueError, match="^n 0 must be at least 1"):
        no_repeat(0)


def test_when_all_words_are_blocked_the_end_is_not():
    logp = no_repeat(1)(torch.zeros(1, 1, 4), torch.tensor([[[3, 2]]]))
    assert logp.tolist() == [[[0.0, 0.0, BLOCKED, BLOCKED]]]
    assert at_least(10)(logp, torch.tensor([[[3, 2]]]))[0, 0, EOS] == 0.0


def test_at_least_blocks_the_end_of_short_hypotheses():
    for length, end in [(0, BLOCKED), (1, BLOCKED), (2, 0.0), (3, 0.0)]:
        logp = torch.zeros(1, 1, 4)
        logp[..., PAD] = BLOCKED
        found = at_least(3)(logp, torch.full((1, 1, length), 3))
        assert found.tolist() == [[[BLOCKED, end, 0.0, 0.0]]]


@pytest.mark.parametrize("search", [beam_search, stepwise])
@pytest.mark.parametrize("n", [1, 2, 3])
def test_no_hypothesis_repeats_itself(model, search, n):
    source, mask = pad_sequences([[2, 3, 4, EOS], [5, EOS], [3, 3, 3, 3, 3, EOS]])
    options = {"beam": 3, "lenpen": 2.0, "max_tokens": 14, "min_tokens": 13}
    free, bound = (
        [h.tokens for found in search(model, source, mask, **options, constraints=c) for h in found]
        for c in ([], [no_repeat(n)])
    )
    assert any(repeats(ids, n) for ids in free)
    assert bound and not any(repeats(ids, n) for ids in bound)


@pytest.mark.parametrize("search", [beam_search, stepwise])
@pytest.mark.parametrize("least", [1, 4, 26])
def test_the_least_length_holds_for_every_hypothesis(model, search, least):
    source, mask = pad_sequences([[2, EOS], [3, 4, 5, 3, 4, EOS]])
    found = search(model, source, mask, beam=3, lenpen=0.0, min_tokens=least)
    lengths = [len(h.tokens) for hypotheses in found for h in hypotheses]
    assert min(lengths) + 1 == least  # this model likes to end


@pytest.mark.parametrize("search", [beam_search, stepwise])
def test_a_wide_beam_finds_the_best_of_what_is_allowed(model, search):
    T, source = 5, torch.tensor([[2, 3, EOS]])
    rows = torch.zeros(1, 3, dtype=torch.bool)
    options = {"beam": 4**T, "min_tokens": 3, "max_tokens": T, "constraints": [no_repeat(1)]}
    found = search(model, source, rows, **options)[0]
    scores = {}
    for length in range(2, T):
        for ids in product(range(2, 6), repeat=length):
            if not repeats(ids, 1):
                logp = model(source, torch.tensor([[EOS, *ids]])).log_softmax(-1)[0]
                total = sum(logp[t, i].item() for t, i in enumerate([*ids, EOS]))
                scores[ids] = total / (length + 1)
    best = sorted(scores, key=lambda ids: -scores[ids])
    assert [tuple(h.tokens) for h in found] == best
    assert [h.score for h in found] == pytest.approx([scores[ids] for ids in best], abs=1e-5)
    assert not any(a == b for ids in best for a, b in pairwise(ids))
