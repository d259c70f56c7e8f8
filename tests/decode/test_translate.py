"""Translating lines: in order, in full batches, within the model's positions, by the recipe."""

from dataclasses import replace

import pytest
import torch
from helpers.translators import model_of, six_positions

from dynconv.config import DecodeConfig
from dynconv.config.recipe import BEAM_SETTINGS
from dynconv.decode import beam_search, translate
from dynconv.decode.constraints import no_repeat
from dynconv.decode.stepper import IncrementalStepper
from dynconv.decode.translating import make_search
from dynconv.errors import NotFiniteOutputError
from dynconv.text import EOS, Vocabularies, Vocabulary, pad_sequences


@pytest.fixture
def vocabularies(corpus):
    text = (corpus / "train.de").read_text(encoding="utf-8").splitlines()
    return Vocabularies(*[Vocabulary.learn(text, 300)] * 2)


def test_translate_gives_a_line_for_each_line_in_order(vocabularies, capsys):
    model = model_of("dynamic", 300)
    config = DecodeConfig(beam=2, batch_tokens=20)
    lines = ["ein und zwanzig", "", "drei und vierzig, " * 9, "  ", "neun und neunzig", "✓ 漢字"]
    output = translate(model, vocabularies, lines, config, max_source_tokens=11)
    assert len(output) == len(lines)
    assert output[1] == output[3] == ""
    assert all("\n" not in line for line in output)
    warning = capsys.readouterr().err
    assert "2 lines, the first of them line 3, have more than 10 tokens and <eos>; only" in warning
    # Alone or among others, in small batches or large: the same translation.
    assert translate(model, vocabularies, lines[4:5], config) == output[4:5]
    larger = replace(config, batch_tokens=4096)
    assert translate(model, vocabularies, lines, larger, max_source_tokens=11) == output
    translate(model, vocabularies, lines * 2, config, max_source_tokens=11)
    assert "4 lines, the first of them line 3" in capsys.readouterr().err


@pytest.mark.parametrize(("rows", "batches"), [(0.5, 6), (3, 2), (100, 1)])
def test_translate_fills_batches_up_to_the_limit(vocabularies, rows, batches):
    sizes = []

    def make_stepper(model, source, pad_mask):
        sizes.append(source.shape)
        return IncrementalStepper(model, source, pad_mask)

    lines = ["ein und zwanzig"] * 6
    length = len(vocabularies.source.encode(lines[:1])[0]) + 1  # with <eos>
    config = DecodeConfig(beam=2, batch_tokens=int(rows * length), max_tokens=2)
    translate(model_of("dynamic", 300), vocabularies, lines, config, make_stepper=make_stepper)
    assert sizes == [(6 // batches, length)] * batches


def test_translate_cuts_a_source_to_the_positions_of_the_model(vocabularies, capsys):
    lines = ["drei und vierzig, ein und achtzig", "neun"]
    output = translate(six_positions(), vocabularies, lines, DecodeConfig(beam=2))
    assert all(output)
    warning = capsys.readouterr().err
    assert "line 1 has" in warning and "first 5 are read (model.max_positions)" in warning
    with pytest.raises(ValueError, match=r"decode.min_tokens 7 exceeds model.max_positions 6"):
        translate(six_positions(), vocabularies, lines, DecodeConfig(min_tokens=7))


@pytest.mark.parametrize(
    "change",
    [
        {"min_tokens": 31},
        {"max_tokens": 3},
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
    found = beam_search(
        model, *pad_sequences(vocabularies.source.encode(lines), eos_after=True), **options
    )
    assert changed == [vocabularies.target.decode(h[0].tokens) for h in found]
    assert changed != plain


CHANGED = {
    "beam": 1,
    "lenpen": 0.0,
    "stepwise": True,
    "min_tokens": 31,
    "max_tokens": 3,
    "no_repeat_ngram_size": 1,
}
"""values that differ from the defaults and, for the length penalty, from 2"""


@pytest.mark.parametrize("name", BEAM_SETTINGS)
def test_each_option_of_the_search_changes_an_output_or_a_score(vocabularies, name):
    model = model_of("dynamic", 300)
    model.output.weight.data *= 5  # sure of itself, it repeats words
    model.output.weight.data[EOS] *= 3  # and ends
    lines = ["neun und zwanzig", "ein und dreißig", "zwei und vierzig, drei und siebzig"]
    source, pad_mask = pad_sequences(vocabularies.source.encode(lines), eos_after=True)
    plain, changed = (
        make_search(model, DecodeConfig(**options), IncrementalStepper)(source, pad_mask)
        for options in ({"lenpen": 2.0}, {"lenpen": 2.0, name: CHANGED[name]})
    )
    assert [best for best, *_ in changed] != [best for best, *_ in plain]


@pytest.mark.parametrize("stepwise", [False, True])
@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_a_diverged_translator_is_named(vocabularies, value, stepwise):
    model = model_of("light", 300)
    for parameter in model.parameters():
        parameter.data.fill_(value)
    config = DecodeConfig(beam=2, max_tokens=5, stepwise=stepwise)
    with pytest.raises(NotFiniteOutputError):
        translate(model, vocabularies, ["ein und zwanzig"], config)
