"""Unknown words: replaced by attention and a dictionary, and where that comes from."""

import random
from dataclasses import replace

import numpy as np
import pytest
import torch

from dynconv.config import ConvS2SConfig, ConvStackConfig, DecodeConfig, Seq2SeqConfig, StackConfig
from dynconv.config.model import MODEL_CONFIGS
from dynconv.decode import beam_search, translate
from dynconv.decode.unknown import read_dictionary, replace_unknown
from dynconv.errors import UserError
from dynconv.models import build
from dynconv.models.assemble import MODEL_CLASSES
from dynconv.models.translator import AttentiveTranslator
from dynconv.text import EOS, UNK, Vocabularies, Vocabulary, pad_sequences
from dynconv.train import train

ATTENTION = [[0.1, 0.6, 0.2, 0.1], [0.7, 0.1, 0.1, 0.1], [0.1, 0.2, 0.1, 0.6], [0.25] * 4]


@pytest.mark.parametrize("array", [np.array, torch.tensor])
def test_the_source_word_of_most_attention_or_its_entry(array):
    source, words = ["in", "Ulm", "wohnt"], ["<unk>", "<unk>", "<unk>"]
    replaced = replace_unknown(words, source, array(ATTENTION), {"Ulm": "ulm", "um": "at"})
    # The third attends most to <eos>, which is no word: "Ulm" comes next.
    assert replaced == ["ulm", "in", "ulm"]
    assert words == ["<unk>"] * 3


def test_known_words_stay():
    attention = np.array(ATTENTION)
    assert replace_unknown(["a", "b"], ["x", "y", "z"], attention, {"y": "b"}) == ["a", "b"]


def test_a_dictionary_is_read_and_faulty_lines_are_refused(tmp_path):
    path = tmp_path / "words.tsv"
    path.write_text("Ulm\tulm\nHaus am See\thouse\n", encoding="utf-8")
    assert read_dictionary(path) == {"Ulm": "ulm", "Haus am See": "house"}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a\tb\nc d\n", "line 2: 'c d' is not source word, tab, target word"),
        ("a\tb\tc\n", "line 1"),
        ("a\t\n", "line 1"),
        ("\n", "line 1"),
        ("a\tb\na\tc\n", "line 2: 'a' has an entry already"),
    ],
)
def test_a_file_that_is_no_dictionary(text, problem, tmp_path):
    path = tmp_path / "words.tsv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=problem):
        read_dictionary(path)


def test_a_missing_dictionary_is_refused(tmp_path):
    with pytest.raises(UserError, match="no such file"):
        read_dictionary(tmp_path / "words.tsv")


@pytest.fixture
def vocabularies():
    texts = "in Ulm um Ulm herum".split(), "in and around the town".split()
    return Vocabularies(*(Vocabulary.learn(t, len({*t}) + 3, "words") for t in texts))


@pytest.fixture
def model(vocabularies):
    """A ConvS2S whose outputs are full of <unk>."""
    torch.manual_seed(1)
    stack = ConvStackConfig(2, 8, 3)
    model = build(
        ConvS2SConfig(vocab_size=vocabularies.vocab_size, embedding=8, encoder=stack, decoder=stack)
    )
    torch.nn.init.constant_(model.output.bias[UNK], 2.0)
    return model.eval()


def test_a_missing_dictionary_is_reported_before_training(recipe, tmp_path):
    stack = ConvStackConfig(1, 8, 3)
    model = ConvS2SConfig(vocab_size=30, embedding=8, encoder=stack, decoder=stack)
    decode = replace(recipe.decode, replace_unknown=True, dictionary="nope.tsv")
    data = replace(recipe.data, vocabulary="words")
    words = replace(recipe, data=data, model=model, decode=decode)
    with pytest.raises(UserError, match="nope.tsv: no such file"):
        train(words, tmp_path)
    assert not (tmp_path / "log.jsonl").exists()


def test_translate_replaces_unknown_words(model, vocabularies, tmp_path):
    path = tmp_path / "words.tsv"
    path.write_text("Ulm\tULM\nPassau\tPASSAU\n", encoding="utf-8")
    lines = ["in Passau um Ulm", "", "\t", "Regensburg  herum", "um Passau und in Passau herum"]
    draw = random.Random(0)
    lines += [" ".join(draw.choices(["in", "um", "Ulm", "Passau"], k=7)) for _ in range(20)]
    config = DecodeConfig(beam=2, max_tokens=6, replace_unknown=True, dictionary=str(path))
    output = translate(model, vocabularies, lines, config, max_source_tokens=6)
    replaced = []
    for line, text in zip(lines, output, strict=True):
        if not line.strip():
            assert text == ""
            continue
        words = line.split()[:5]
        source, mask = pad_sequences(vocabularies.source.encode([" ".join(words)]), eos_after=True)
        ids = beam_search(model, source, mask, beam=2, max_tokens=6)[0][0].tokens
        attention = model.attention(torch.tensor([[EOS, *ids]]), model.encode(source, mask))[0]
        for t, (i, word) in enumerate(zip(ids, text.split(" "), strict=True)):
            if i == UNK:
                attended = words[int(attention[t, : len(words)].argmax())]
                assert word == {"Ulm": "ULM", "Passau": "PASSAU"}.get(attended, attended)
                replaced.append(word)
            else:
                assert word == vocabularies.target.pieces([i])[0]
    assert len({*replaced}) > 1
    without = translate(model, vocabularies, lines, DecodeConfig(beam=2, max_tokens=6))
    assert any("<unk>" in text for text in without) and "<unk>" not in " ".join(output)


class Wrapped(AttentiveTranslator):
    """A further architecture that shows its attention."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def attention(self, prefix, memory):
        return self.model.attention(prefix, memory)

    def encode(self, source, pad_mask=None):
        return self.model.encode(source, pad_mask)

    def hidden_states(self, prefix, memory):
        return self.model.hidden_states(prefix, memory)

    def start(self, memory):
        return self.model.start(memory)

    def step(self, tokens, memory, state):
        return self.model.step(tokens, memory, state)


def test_any_model_that_shows_its_attention_replaces_words(model, vocabularies):
    config = DecodeConfig(beam=2, max_tokens=6, replace_unknown=True)
    lines = ["in Ulm", "um Ulm herum"]
    expected = translate(model, vocabularies, lines, config)
    assert translate(Wrapped(model), vocabularies, lines, config) == expected


def test_a_recipe_knows_which_models_show_their_attention():
    shown = [name for name, each in MODEL_CONFIGS.items() if each.shows_attention]
    able = [name for name, each in MODEL_CLASSES.items() if issubclass(each, AttentiveTranslator)]
    assert shown == able == ["convs2s"]


def test_replacement_needs_attention_and_words(model, vocabularies):
    config = DecodeConfig(replace_unknown=True)
    stack = StackConfig(1, "light", 3)
    sizes = {"vocab_size": 8, "channels": 8, "ffn": 8, "heads": 2}
    light = build(Seq2SeqConfig(**sizes, encoder=stack, decoder=stack))
    with pytest.raises(UserError, match=r"decode\.replace_unknown: Seq2Seq does not give its"):
        translate(light, vocabularies, ["in Ulm"], config)
    spelled = Vocabularies(*[Vocabulary.learn(["in Ulm"] * 9, 263)] * 2)
    assert len(spelled.source.encode(["in Ulm"])[0]) == 2  # as many as there are words
    with pytest.raises(UserError, match=r"decode\.replace_unknown: only for .* words"):
        translate(model, spelled, ["in Ulm"], config)
