"""Training language models: what they read, and that they learn it."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from dynconv import cli
from dynconv.config import DataConfig, LanguageModelConfig, Recipe, StackConfig, dump_recipe
from dynconv.errors import UserError
from dynconv.tasks import Validation, task_of
from dynconv.tasks.language import NEGATIVE_LOSS
from dynconv.text import EOS, Excerpts, Vocabulary, encode_corpus
from dynconv.train import load_model, train
from dynconv.train.events import read_log

LINES = ["one two three four", "five six", "", "seven eight nine ten one two"]
WORDS = 13  # ten, and <pad>, <eos>, <unk>


@pytest.fixture
def text(tmp_path):
    """A text of 400 lines that count, 20 to validate on and 20 to test."""
    folder = tmp_path / "text"
    folder.mkdir()
    counted = "one two three four five six seven eight nine ten".split()
    draw = np.random.default_rng(0)
    for split, lines in {"train": 400, "valid": 20, "test": 20}.items():
        starts = draw.integers(0, 6, lines)
        text = "".join(" ".join(counted[s : s + 5]) + "\n" for s in starts)
        (folder / f"{split}.txt").write_text(text)
    return folder


@pytest.fixture(params=[None, 16], ids=["lines", "blocks"])
def language(recipe, text, request) -> Recipe:
    model = LanguageModelConfig(
        vocab_size=WORDS,
        channels=16,
        ffn=16,
        heads=2,
        decoder=StackConfig(1, "dynamic", 3),
        cutoffs=(5,),
        div_value=2,
        final_norm=True,
    )
    data = DataConfig(str(text), None, "txt", "words", request.param)
    config = replace(
        recipe.train,
        updates=150,
        checkpoint_every=75,
        label_smoothing=0.0,
        lr=2e-2,
        batch_tokens=200,
    )
    return replace(recipe, data=data, model=model, train=config, metric="perplexity")


def written(lines: list[str], folder) -> Excerpts:
    (folder / "train.txt").write_text("".join(f"{line}\n" for line in lines))
    return encode_corpus(str(folder), None, "txt", WORDS, folder / "prepared", "words")


def test_lines_and_blocks_predict_every_token_once(tmp_path):
    corpus = written(LINES, tmp_path)
    vocabulary = corpus.load_vocabularies().target
    ids = [token for line in vocabulary.encode(LINES) for token in [*line, EOS]]
    assert corpus.target_tokens == len(ids) - len(LINES) and corpus.lines == 4
    for block, pieces in ((None, [5, 3, 1, 7]), (6, [6, 6, 4]), (100, [16])):
        excerpts = Excerpts.from_corpus(corpus, block)
        everything = range(len(excerpts))
        assert excerpts.lengths(everything).tolist() == [[0, n] for n in pieces]
        assert [i for n in everything for i in excerpts[n][1:].tolist()] == ids
        assert [excerpts[n][0] for n in everything] == [EOS, *(e[-1] for e in excerpts)][:-1]
        batch = excerpts.batch(everything)
        assert batch.target.tolist() == ids
        assert batch.prefix.flatten()[batch.target_positions].tolist() == [EOS, *ids[:-1]]
        in_memory = Excerpts.from_lines(LINES, vocabulary, block)
        assert all((a == b).all() for a, b in zip(excerpts, in_memory, strict=True))


def test_a_language_model_learns_to_count(language, tmp_path):
    run = tmp_path / "run"
    assert train(language, run) is None
    losses = [event["loss"] for event in read_log(run) if event["event"] == "valid"]
    # Six starts at random, then all is certain, the <eos> included: log(6) / 6 a token.
    assert losses[1] < losses[0] and losses[1] < math.log(6) / 6 + 0.4
    best = load_model(run).checkpoint.meta
    assert best["score"] == -best["loss"] == -min(losses)


def test_perplexity_of_a_run_is_that_of_its_validation(language, tmp_path, capsys):
    run = tmp_path / "run"
    (tmp_path / "count.yaml").write_text(dump_recipe(language))
    assert cli.main(["train", str(tmp_path / "count.yaml"), "--run", str(run)]) == 0
    assert cli.main(["evaluate", str(run), "--split", "valid"]) == 0
    assert "perplexity =" in capsys.readouterr().out
    for command in (["translate", str(run)], ["bench", "decode", str(run)]):
        assert cli.main(command) == 2
        assert "a language model, which has nothing to translate from" in capsys.readouterr().err
    scores = json.loads((run / "valid.scores.json").read_text())
    loss = load_model(run).checkpoint.meta["loss"]
    assert scores["nats"] / scores["tokens"] == pytest.approx(loss, rel=1e-5)
    by_word, by_token = scores["scores"]
    assert by_word["value"] == pytest.approx(by_token["value"])  # each word is a token


def test_resuming_changes_nothing(language, tmp_path):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    short = replace(
        language, train=replace(language.train, updates=6, checkpoint_every=3, warmup=2)
    )
    train(short, whole)
    train(replace(short, train=replace(short.train, updates=3)), parts)
    text = (parts / "recipe.yaml").read_text().replace("updates: 3", "updates: 6")
    (parts / "recipe.yaml").write_text(text)
    train(short, parts)
    a, b = (load_model(run, "last").model.state_dict() for run in (whole, parts))
    assert all((a[name] == b[name]).all() for name in a)


def test_a_model_that_diverges_has_infinite_perplexity(language):
    diverged = Validation(1e4, -1e4, NEGATIVE_LOSS)
    assert "perplexity inf" in task_of(language).describe_validation(diverged)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"metric": "bleu"},
            "metric bleu does not fit .* language-model: set metric to perplexity",
        ),
        (
            {"data": DataConfig()},
            "data.source de does not fit .* language-model: set data.source to null",
        ),
    ],
)
def test_contradicting_settings_are_reported(language, changes, words):
    with pytest.raises(ValueError, match=words):
        replace(language, **changes)
    with pytest.raises(ValueError, match="label_smoothing 0.1 must be 0"):
        replace(language, train=replace(language.train, label_smoothing=0.1))


def test_words_never_seen_in_training_are_unknown(text):
    vocabulary = Vocabulary.learn((text / "train.txt").read_text().splitlines(), WORDS, "words")
    assert vocabulary.decode(vocabulary.encode(["one hundred two"])[0]) == "one <unk> two"
    with pytest.raises(UserError, match="yields 13 types, not 14: give 13 as"):
        Vocabulary.learn((text / "train.txt").read_text().splitlines(), 14, "words")
