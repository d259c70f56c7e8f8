"""Search: against enumeration, a slow search, itself without state, and line by line."""

from dataclasses import replace
from itertools import product

import pytest
import torch
from conftest import sized_stack

from dynconv.config import (
    ConvS2SConfig,
    ConvStackConfig,
    DecodeConfig,
    ModelConfig,
)
from dynconv.decode import beam_search, greedy, translate
from dynconv.decode.constraints import no_repeat
from dynconv.decode.search import max_lengths
from dynconv.decode.stepper import Incremental, Recompute
from dynconv.errors import UserError
from dynconv.models import build
from dynconv.models.mixers import MIXERS
from dynconv.text import EOS, PAD, Vocabularies, Vocabulary, pad


def stepwise(*arguments, **options):
    """Beam search for summaries."""
    return beam_search(*arguments, stepwise=True, **options)


def model_of(mixer: str, vocab_size: int = 12):
    torch.manual_seed(3)
    stack = sized_stack(2, mixer, 3)
    options = {"norm": "pre", "embeddings": "separate", "dropout": 0.0}
    config = ModelConfig(
        vocab_size=vocab_size, channels=8, ffn=16, heads=2, encoder=stack, decoder=stack, **options
    )
    return build(config).eval()


@pytest.fixture
def sources():
    generator = torch.Generator().manual_seed(0)
    lengths = [5, 1, 3, 7]
    return pad([[*torch.randint(2, 12, (n,), generator=generator).tolist(), EOS] for n in lengths])


@pytest.mark.parametrize("lenpen", [0.0, 1.0, 1.7])
def test_a_wide_beam_finds_what_enumeration_finds(lenpen):
    V, T = 4, 5
    model = model_of("dynamic", V)
    source, mask = pad([[2, 3, 3, EOS], [3, EOS]])
    found = beam_search(model, source, mask, beam=V**T, lenpen=lenpen, max_length=T)
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
        search(model, *sources, beam=3, stepper=stepper) for stepper in (Incremental, Recompute)
    )
    for a, b in zip(with_state, without, strict=True):
        assert [h.tokens for h in a] == [h.tokens for h in b]
        assert [h.score for h in a] == pytest.approx([h.score for h in b], abs=1e-5)


@pytest.mark.parametrize("most", [None, 1, 4])
def test_beam_of_one_is_greedy(sources, most):
    model = model_of("dynamic")
    translations = greedy(model, *sources, max_length=most)
    found = beam_search(model, *sources, beam=1, max_length=most)
    assert [h[0].tokens for h in found] == translations
    if most is not None:
        assert max(map(len, translations)) == most - 1  # <eos> is the last


@pytest.mark.parametrize("search", [beam_search, stepwise])
@pytest.mark.parametrize("beam", [1, 4])
def test_a_sentence_does_not_depend_on_its_batch(sources, beam, search):
    model = model_of("light")
    together = search(model, *sources, beam=beam, max_length=9)
    for row in range(4):
        n = int((~sources[1][row]).sum())
        alone = search(
            model,
            sources[0][row : row + 1, :n],
            sources[1][row : row + 1, :n],
            beam=beam,
            max_length=9,
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
    found = stepwise(model, *sources, beam=beam, lenpen=lenpen, max_length=7)
    for row, hypotheses in enumerate(found):
        n = int((~sources[1][row]).sum())
        slow = slow_stepwise(model, sources[0][row : row + 1, :n], beam, lenpen, 7)
        assert [h.tokens for h in hypotheses] == [ids for ids, _ in slow]
        assert [h.score for h in hypotheses] == pytest.approx([s for _, s in slow], abs=1e-5)


def test_a_stepwise_penalty_decides_otherwise(sources):
    model = model_of("dynamic")
    last, each = (
        [h[0].tokens for h in search(model, *sources, beam=3, lenpen=2.0, max_length=9)]
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


@pytest.fixture
def vocabularies(corpus):
    text = (corpus / "train.de").read_text(encoding="utf-8").splitlines()
    return Vocabularies(*[Vocabulary.learn(text, 300)] * 2)


def test_translate_gives_a_line_for_each_line_in_order(vocabularies, capsys):
    model = model_of("dynamic", 300)
    config = DecodeConfig(beam=2, batch_tokens=20)
    lines = ["ein und zwanzig", "", "drei und vierzig, " * 9, "  ", "neun und neunzig", "✓ 漢字"]
    output = translate(model, vocabularies, lines, config, max_source=10)
    assert len(output) == len(lines)
    assert output[1] == output[3] == ""
    assert all("\n" not in line for line in output)
    warning = capsys.readouterr().err
    assert "2 lines, the first of them line 3, have more than 10 tokens; only" in warning
    # alone or among others, in small batches or large: the same translation
    assert translate(model, vocabularies, lines[4:5], config) == output[4:5]
    larger = replace(config, batch_tokens=4096)
    assert translate(model, vocabularies, lines, larger, max_source=10) == output
    translate(model, vocabularies, lines * 2, config, max_source=10)
    assert "4 lines, the first of them line 3" in capsys.readouterr().err


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


@pytest.mark.parametrize("search", [beam_search, stepwise])
def test_a_beam_of_none_is_refused(search, sources):
    with pytest.raises(ValueError, match="^beam 0 must be at least 1"):
        search(model_of("dynamic"), *sources, beam=0)


@pytest.mark.parametrize(("rows", "batches"), [(0.5, 6), (3, 2), (100, 1)])
def test_translate_fills_batches_up_to_the_limit(vocabularies, rows, batches):
    sizes = []

    def stepper(model, source, pad_mask):
        sizes.append(source.shape)
        return Incremental(model, source, pad_mask)

    lines = ["ein und zwanzig"] * 6
    length = len(vocabularies.source.encode(lines[:1])[0]) + 1  # with <eos>
    config = DecodeConfig(beam=2, batch_tokens=int(rows * length), max_length=2)
    translate(model_of("dynamic", 300), vocabularies, lines, config, stepper=stepper)
    assert sizes == [(6 // batches, length)] * batches


def test_length_limits_by_hand():
    model, mask = model_of("dynamic"), torch.arange(7) >= torch.tensor([[7], [2]])
    assert max_lengths(model, mask, None).tolist() == [24, 14]
    assert max_lengths(model, mask, None, min_length=20).tolist() == [24, 21]
    assert max_lengths(model, mask, 9).tolist() == [9, 9]
    model.max_positions = 16
    assert max_lengths(model, mask, None).tolist() == [16, 14]
    assert max_lengths(model, mask, 40).tolist() == [16, 16]


@pytest.fixture
def six_positions():
    """A ConvS2S that raises when asked for a seventh position, and does not like to end."""
    torch.manual_seed(3)
    stack = ConvStackConfig(1, 8, 3)
    config = ConvS2SConfig(
        vocab_size=300, embedding=8, encoder=stack, decoder=stack, max_positions=6
    )
    model = build(config).eval()
    torch.nn.init.constant_(model.output.bias[EOS], -9.0)
    return model


@pytest.mark.parametrize("search", [greedy, beam_search, stepwise])
def test_no_search_asks_for_more_positions_than_there_are(search, six_positions):
    source, mask = pad([[5, 6, 7, 8, 9, EOS], [4, EOS]])
    found = search(six_positions, source, mask)
    tokens = found if search is greedy else [h[0].tokens for h in found]
    assert [len(ids) for ids in tokens] == [5, 5]


def test_translate_cuts_a_source_to_the_positions_of_the_model(vocabularies, six_positions, capsys):
    lines = ["drei und vierzig, ein und achtzig", "neun"]
    output = translate(six_positions, vocabularies, lines, DecodeConfig(beam=2))
    assert all(output)
    warning = capsys.readouterr().err
    assert "line 1 has" in warning and "first 5 are read (model.max_positions)" in warning
    with pytest.raises(UserError, match=r"decode.min_length 6 and <eos> .* model.max_positions 6"):
        translate(six_positions, vocabularies, lines, DecodeConfig(min_length=6))


@pytest.mark.parametrize(
    "change",
    [
        {"min_length": 30},
        {"max_length": 3},
        {"no_repeat_ngram_size": 1},
        {"stepwise": True, "lenpen": 2.0},
    ],
    ids=str,
)
def test_translate_obeys_the_recipe(vocabularies, change):
    model = model_of("dynamic", 300)
    model.output.weight.data *= 5  # sure of itself, it repeats words
    model.output.weight.data[EOS] *= 3  # and ends
    lines = ["neun und zwanzig", "ein und dreißig", "zwei und vierzig, drei und siebzig"]
    plain, changed = (
        translate(model, vocabularies, lines, DecodeConfig(beam=3, **c)) for c in ({}, change)
    )
    options = {"beam": 3, **change}
    if n := options.pop("no_repeat_ngram_size", 0):
        options["constraints"] = [no_repeat(n)]
    found = beam_search(model, *pad(vocabularies.source.encode(lines), after=1), **options)
    assert changed == [vocabularies.target.decode(h[0].tokens) for h in found]
    assert changed != plain
