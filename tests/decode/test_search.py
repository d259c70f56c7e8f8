"""Search: against enumeration, a slow search, and itself without state."""

from itertools import product
from typing import NamedTuple

import pytest
import torch
from helpers.translators import model_of, six_positions, stepwise
from torch import nn

from dynconv.decode import beam_search, greedy
from dynconv.decode.search import max_lengths
from dynconv.decode.stepper import IncrementalStepper, RecomputingStepper
from dynconv.models import Translator
from dynconv.models.decoder_state import DecoderState
from dynconv.models.mixers import MIXERS
from dynconv.text import EOS, PAD, pad_sequences


@pytest.fixture
def sources():
    generator = torch.Generator().manual_seed(0)
    lengths = [5, 1, 3, 7]
    return pad_sequences(
        [[*torch.randint(2, 12, (n,), generator=generator).tolist(), EOS] for n in lengths]
    )


@pytest.mark.parametrize("lenpen", [0.0, 1.0, 1.7])
def test_a_wide_beam_finds_what_enumeration_finds(lenpen):
    V, T = 4, 5
    model = model_of("dynamic", V)
    source, mask = pad_sequences([[2, 3, 3, EOS], [3, EOS]])
    found = beam_search(model, source, mask, beam=V**T, lenpen=lenpen, max_tokens=T)
    for row in range(2):
        scores = {}
        for length in range(T):
            for tokens in product([2, 3], repeat=length):
                prefix = torch.tensor([[EOS, *tokens]])
                logits = model(source[row : row + 1], prefix, mask[row : row + 1])
                logp = logits.log_softmax(-1)[0]
                total = sum(logp[t, i].item() for t, i in enumerate([*tokens, EOS]))
                scores[tokens] = total / (length + 1) ** lenpen
        best = sorted(scores.items(), key=lambda item: -item[1])
        assert len(found[row]) == len(best) == 31
        for hypothesis, (tokens, score) in zip(found[row][:5], best[:5], strict=True):
            assert tuple(hypothesis.tokens) == tokens
            assert hypothesis.score == pytest.approx(score, abs=1e-5)


@pytest.mark.parametrize("search", [beam_search, stepwise])
@pytest.mark.parametrize("mixer", MIXERS)
def test_state_changes_nothing(mixer, search, sources):
    model = model_of(mixer)
    with_state, without = (
        search(model, *sources, beam=3, make_stepper=stepper)
        for stepper in (IncrementalStepper, RecomputingStepper)
    )
    for a, b in zip(with_state, without, strict=True):
        assert [h.tokens for h in a] == [h.tokens for h in b]
        assert [h.score for h in a] == pytest.approx([h.score for h in b], abs=1e-5)


@pytest.mark.parametrize("most", [None, 1, 4])
def test_beam_of_one_is_greedy(sources, most):
    model = model_of("dynamic")
    translations = greedy(model, *sources, max_tokens=most)
    found = beam_search(model, *sources, beam=1, max_tokens=most)
    assert [h[0].tokens for h in found] == translations
    if most is not None:
        assert max(map(len, translations)) == most - 1  # <eos> is the last


@pytest.mark.parametrize("search", [beam_search, stepwise])
@pytest.mark.parametrize("beam", [1, 4])
def test_a_sentence_does_not_depend_on_its_batch(sources, beam, search):
    model = model_of("light")
    together = search(model, *sources, beam=beam, max_tokens=9)
    for row in range(4):
        n = int((~sources[1][row]).sum())
        alone = search(
            model,
            sources[0][row : row + 1, :n],
            sources[1][row : row + 1, :n],
            beam=beam,
            max_tokens=9,
        )
        assert [h.tokens for h in alone[0]] == [h.tokens for h in together[row]]


def slow_stepwise(model, source, beam: int, lenpen: float, limit: int):
    """The stepwise search of one sentence (1, S), without tensors of hypotheses: (ids, score)."""
    hypotheses = [([], 0.0, False)]
    while not all(done for _, _, done in hypotheses):
        pool = []
        for ids, total, done in hypotheses:
            if done:
                pool.append((ids, total, True))
                continue
            logp = model(source, torch.tensor([[EOS, *ids]]))[0, -1].log_softmax(-1).tolist()
            for token, value in enumerate(logp):
                if token != PAD and (token == EOS or len(ids) + 1 < limit):
                    grown = ids if token == EOS else [*ids, token]
                    pool.append((grown, total + value, token == EOS))
        scored = [(h, h[1] / (len(h[0]) + 1 if h[2] else len(h[0])) ** lenpen) for h in pool]
        scored = sorted(scored, key=lambda pair: -pair[1])[:beam]
        hypotheses = [h for h, _ in scored]
    return [(h[0], score) for h, score in scored]


@pytest.mark.parametrize("lenpen", [0.0, 1.0, 2.0])
@pytest.mark.parametrize("beam", [1, 2, 5])
def test_stepwise_search_equals_a_slow_one(sources, beam, lenpen):
    model = model_of("dynamic")
    found = stepwise(model, *sources, beam=beam, lenpen=lenpen, max_tokens=7)
    for row, hypotheses in enumerate(found):
        n = int((~sources[1][row]).sum())
        slow = slow_stepwise(model, sources[0][row : row + 1, :n], beam, lenpen, 7)
        assert [h.tokens for h in hypotheses] == [ids for ids, _ in slow]
        assert [h.score for h in hypotheses] == pytest.approx([s for _, s in slow], abs=1e-5)


def test_a_stepwise_penalty_decides_otherwise(sources):
    model = model_of("dynamic")
    last, each = (
        [h[0].tokens for h in search(model, *sources, beam=3, lenpen=2.0, max_tokens=9)]
        for search in (beam_search, stepwise)
    )
    assert last != each


def test_a_larger_length_penalty_prefers_longer_translations(sources):
    model = model_of("dynamic")
    lengths = [
        sum(len(h[0].tokens) for h in beam_search(model, *sources, beam=4, lenpen=p))
        for p in (0.0, 3.0)
    ]
    assert lengths[0] < lengths[1]


@pytest.mark.parametrize("search", [greedy, beam_search, stepwise])
def test_every_search_decodes_in_eval_mode(search, sources):
    """Dropout must not decide, whatever mode the model was in."""
    model = model_of("dynamic")
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.5
    expected = search(model, *sources)
    assert search(model.train(), *sources) == expected
    assert not model.training


@pytest.mark.parametrize("number", [0, -1])
def test_greedy_search_without_room_is_refused(sources, number):
    with pytest.raises(ValueError, match=f"^max_tokens {number} must be at least 1"):
        greedy(model_of("dynamic"), *sources, max_tokens=number)


@pytest.mark.parametrize("search", [beam_search, stepwise])
@pytest.mark.parametrize(("name", "number"), [("beam", 0), ("max_tokens", 0), ("max_tokens", -1)])
def test_a_search_without_room_is_refused(search, sources, name, number):
    with pytest.raises(ValueError, match=f"^{name} {number} must be at least 1"):
        search(model_of("dynamic"), *sources, **{name: number})


def test_length_limits_by_hand():
    mask = torch.arange(7) >= torch.tensor([[7], [2]])
    assert max_lengths(mask, None, None).tolist() == [24, 14]
    assert max_lengths(mask, None, None, min_tokens=21).tolist() == [24, 21]
    assert max_lengths(mask, None, 9).tolist() == [9, 9]
    assert max_lengths(mask, 16, None).tolist() == [16, 14]
    assert max_lengths(mask, 16, 40).tolist() == [16, 16]


@pytest.mark.parametrize("search", [greedy, beam_search, stepwise])
def test_no_search_asks_for_more_positions_than_there_are(search):
    source, mask = pad_sequences([[5, 6, 7, 8, 9, EOS], [4, EOS]])
    found = search(six_positions(), source, mask)
    tokens = found if search is greedy else [h[0].tokens for h in found]
    assert [len(ids) for ids in tokens] == [5, 5]


class Tokens(NamedTuple):
    """The memory of `ToyTranslator`."""

    embedded: torch.Tensor


class ToyTranslator(Translator):
    """As small as the interface allows: next tokens depend on the newest and on the source."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(8, 4)
        self.output = nn.Linear(4, 8)

    def encode(self, source, pad_mask=None):
        return Tokens(self.embedding(source))

    def hidden_states(self, target, memory):
        context = memory.embedded.mean(1, keepdim=True)
        context = context.repeat_interleave(len(target) // len(context), dim=0)
        return self.embedding(target) + context

    def start(self, memory):
        return DecoderState(0, [], [])

    def step(self, tokens, memory, state):
        state = state._replace(position=state.position + tokens.shape[1])
        return self.output(self.hidden_states(tokens, memory)), state


def test_a_translator_needs_only_its_interface():
    torch.manual_seed(0)
    model, sources = ToyTranslator(), pad_sequences([[3, 4, EOS], [5, 3, 6, 7, EOS], [6, EOS]])
    with_state, without = (
        beam_search(model, *sources, beam=3, make_stepper=stepper)
        for stepper in (IncrementalStepper, RecomputingStepper)
    )
    for a, b in zip(with_state, without, strict=True):
        assert [h.tokens for h in a] == [h.tokens for h in b]
    best = [found[0].tokens for found in beam_search(model, *sources, beam=1)]
    assert greedy(model, *sources) == best
