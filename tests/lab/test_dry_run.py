"""Every shipped recipe, at full size, is built, and rehearsed from training to a score."""

import signal
from dataclasses import replace

import pytest

from dynconv import cli
from dynconv.config import load_recipe, recipe_names
from dynconv.errors import UserError
from dynconv.lab import dry_run as module
from dynconv.lab.dry_run import dry_run, narrow

SHIPPED = recipe_names()


@pytest.mark.parametrize("name", SHIPPED)
def test_every_recipe_is_rehearsed(name):
    recipe = load_recipe(name)
    report = list(dry_run(recipe))
    heads = [line.split()[0] for line in report]
    expected = ["parameters", "text", "rehearsal", "scored"]
    assert heads == ["published"] * len(recipe.published) + expected


def test_the_command_prints_the_recipe_and_the_report(capsys):
    assert cli.main(["train", "iwslt14-de-en-talk", "decode.beam=2", "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert "beam: 2" in out
    assert "# published      Lioutas and Guo 2020, Table 3" in out
    assert "no directory prepared/iwslt14-de-en; dynconv data fetch" in out
    assert "8 sentences of split test" in out and "beam 2" in out


def test_a_rehearsal_that_a_signal_ends_is_not_scored(monkeypatch):
    monkeypatch.setattr(module, "train", lambda recipe, run: signal.SIGTERM)
    with pytest.raises(UserError, match="stopped by SIGTERM: nothing was scored"):
        list(dry_run(load_recipe("help-de-en-dynamic")))


def test_the_copy_of_a_recipe_without_warm_up_has_none():
    rate = ["train.schedule=inverse_sqrt", "train.lr=1e-8"]  # below lr_start
    recipe = load_recipe("help-de-en-dynamic", ["train.warmup=0", *rate])
    assert narrow(recipe).train.warmup == 0


@pytest.mark.parametrize("command", [["train", "--dry-run"], ["estimate"]])
def test_a_misspelt_corpus_is_not_passed(command, capsys):
    name, *options = command
    assert cli.main([name, "help-de-en-dynamic", "data.corpus=libreofice-de-en", *options]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "did you mean libreoffice-de-en?" in error


@pytest.mark.parametrize("missing", ["train.de", "valid.en"])
def test_a_text_without_a_side_is_not_passed(recipe, corpus, tmp_path, missing):
    for file in corpus.iterdir():
        if file.name != missing:
            (tmp_path / file.name).write_bytes(file.read_bytes())
    data = replace(recipe.data, corpus=str(tmp_path))
    with pytest.raises(UserError, match=f"no {missing}, {missing}.xz or {missing}.gz there"):
        list(dry_run(replace(recipe, data=data)))


def test_the_copy_keeps_every_switch():
    recipe = load_recipe("wmt16-en-de-dynamic")
    copy = narrow(recipe)
    assert copy.model == replace(recipe.model, vocab_size=300, channels=32, ffn=32, heads=4)
    assert copy.train.lr == recipe.train.lr and copy.decode.beam == recipe.decode.beam


def test_a_recipe_that_cannot_train_is_not_passed(recipe):
    with pytest.raises(ValueError, match="loss nan"):
        config = replace(recipe.train, lr=1e12, lr_start=1e12, max_skipped=0)
        list(dry_run(replace(recipe, train=config)))
