"""Search: against enumeration, against itself without state, and line by line."""

from dataclasses import replace
from itertools import product

import pytest
import torch

from dynconv.config import DecodeConfig, ModelConfig, StackConfig
from dynconv.decode import beam_search, greedy, translate
from dynconv.decode.state import Incremental, Recompute
from dynconv.models import build
from dynconv.text import BPE, EOS, pad

MIXERS = ["attention", "dense", "depthwise", "light", "dynamic", "talk", "average"]


def model_of(mixer: str, vocab_size: int = 12):
    torch.manual_seed(3)
    stack = StackConfig(2, mixer, None if mixer == "average" else 3)
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


@pytest.mark.parametrize("mixer", MIXERS)
def test_state_changes_nothing(mixer, sources):
    model = model_of(mixer)
    with_state, without = (
        beam_search(model, *sources, beam=3, stepper=stepper)
        for stepper in (Incremental, Recompute)
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


@pytest.mark.parametrize("beam", [1, 4])
def test_a_sentence_does_not_depend_on_its_batch(sources, beam):
    model = model_of("light")
    together = beam_search(model, *sources, beam=beam, max_length=9)
    for row in range(4):
        n = int((~sources[1][row]).sum())
        alone = beam_search(
            model,
            sources[0][row : row + 1, :n],
            sources[1][row : row + 1, :n],
            beam=beam,
            max_length=9,
        )
        assert [h.tokens for h in alone[0]] == [h.tokens for h in together[row]]


def test_a_larger_length_penalty_prefers_longer_translations(sources):
    model = model_of("dynamic")
    lengths = [
        sum(len(h[0].tokens) for h in beam_search(model, *sources, beam=4, lenpen=p))
        for p in (0.0, 3.0)
    ]
    assert lengths[0] < lengths[1]


@pytest.fixture
def bpe(corpus):
    return BPE.learn((corpus / "train.de").read_text(encoding="utf-8").splitlines(), 300)


def test_translate_gives_a_line_for_each_line_in_order(bpe, capsys):
    model = model_of("dynamic", len(bpe))
    config = DecodeConfig(beam=2, max_source=10, batch_tokens=20)
    lines = ["ein und zwanzig", "", "drei und vierzig, " * 9, "  ", "neun und neunzig", "✓ 漢字"]
    output = translate(model, bpe, lines, config)
    assert len(output) == len(lines)
    assert output[1] == output[3] == ""
    assert all("\n" not in line for line in output)
    warning = capsys.readouterr().err
    assert "line 3 has" in warning and "only the first 10" in warning
    # alone or among others, in small batches or large: the same translation
    assert translate(model, bpe, lines[4:5], config) == output[4:5]
    assert translate(model, bpe, lines, replace(config, batch_tokens=4096)) == output
