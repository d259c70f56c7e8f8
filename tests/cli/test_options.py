"""Options of the command line: what they allow is accepted, the rest is refused in one line."""

import argparse
import inspect
from collections.abc import Iterator
from typing import get_args

import pytest
from helpers.schema import STRANGE, bounds

from dynconv import cli, schema
from dynconv.choices import VocabularyKind
from dynconv.decode import sample
from dynconv.lab.recall import train_recall


def numeric(parser=None, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str, str]]:
    """The commands, their options that are numbers, and the types of those."""
    for action in (parser or cli.make_parser())._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, inner in action.choices.items():
                yield from numeric(inner, (*words, name))
        elif action.type in (int, float):
            raise AssertionError(f"{words} {action.option_strings} has no bounds")
        elif hasattr(action.type, "schema"):
            yield words, action.option_strings[0], action.type.schema


@pytest.mark.parametrize(("words", "option", "kind"), list(numeric()))
def test_each_number_is_checked_before_anything_is_read(words, option, kind, capsys):
    kind, limits = bounds(getattr(schema, kind))
    high = [limits[key] for key in ("lt", "le") if key in limits]
    beyond = [*STRANGE, *(f"{2 * limit:.0f}" for limit in high)]
    if kind is float and limits.get("ge", 1) <= 0:
        beyond.remove("0")
    if kind is float:
        beyond.remove("1.5" if limits.get("le", 2) >= 1.5 else "0")
    for value in beyond:
        if limits.get("ge", 0) < 0 and value == "-1" or limits.get("ge") == 0 and value == "0":
            continue
        names = ["x"] * (words[-1] not in ("ops", "kernels"))
        assert cli.main([*words, *names, option, value]) == 2, value[:30]
        error = capsys.readouterr().err
        assert error.count("\n") == 1 and len(error) < 320
        assert f"argument {option}" in error and "must be a" in error


def test_enough_options_take_numbers():
    assert len(list(numeric())) > 20


def test_score_names_the_files(tmp_path, capsys):
    for name, lines in (("mine", 3), ("theirs", 4)):
        (tmp_path / name).write_text("a line\n" * lines)
    assert cli.main(["score", str(tmp_path / "mine"), str(tmp_path / "theirs")]) == 2
    error = capsys.readouterr().err
    assert "mine has 3 lines but" in error and "theirs has 4" in error


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["libreoffice-fr-en", "--raw", "x"], "raw directory x has no effect"),
        (["libreoffice-fr-en", "--suffixes", "fr", "--vocab-size", "9", "9"], "give one size"),
    ],
)
def test_options_of_prepare_without_effect(options, words, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["data", "prepare", *options]) == 2
    assert words in capsys.readouterr().err and not list(tmp_path.iterdir())


def test_data_prepare_takes_suffixes_also_by_the_old_option(capsys):
    prepare = ["data", "prepare", "jane-austen"]
    for option in "--suffixes", "--languages":
        assert cli.make_parser().parse_args([*prepare, option, "txt"]).suffixes == ["txt"]
    assert cli.make_parser().parse_args(prepare).suffixes is None
    assert cli.main([*prepare, "--suffixes", "txt", "--languages", "txt"]) == 2
    assert "not allowed with argument --suffixes" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        cli.main(["data", "prepare", "--help"])
    assert "--languages" not in capsys.readouterr().out


def test_data_prepare_offers_every_kind_of_vocabulary(capsys):
    assert cli.main(["data", "prepare", "libreoffice-fr-en", "--vocabulary", "zzz"]) == 2
    assert f"choose from {', '.join(get_args(VocabularyKind))}" in capsys.readouterr().err


def test_a_reused_vocabulary_of_another_kind(corpus, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    prepare = ["data", "prepare", str(corpus), "--suffixes", "de", "en"]
    assert cli.main([*prepare, "--vocab-size", "300", "--out", "one"]) == 0
    reuse = ["--reuse", "one/vocabulary.json", "--out", "other"]
    assert cli.main([*prepare, *reuse, "--vocabulary", "words"]) == 2
    assert "vocabulary words has no effect" in capsys.readouterr().err
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("arguments", [["x" * 5000], ["data", "x" * 5000]])
def test_an_unknown_command_is_one_line(arguments, capsys):
    assert cli.main(arguments) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and len(error) < 320


@pytest.mark.parametrize(
    "words, function", [("generate RUN", sample), ("bench recall", train_recall)]
)
def test_an_option_has_the_default_of_the_function(words, function):
    """Otherwise `dynconv bench recall` would record a command that runs another measurement."""
    options = vars(cli.make_parser().parse_args(words.split()))
    parameters = inspect.signature(function).parameters.values()
    defaults = {p.name: p.default for p in parameters if p.default is not p.empty}
    shared = options.keys() & defaults.keys()
    assert shared
    assert {name: options[name] for name in shared} == {name: defaults[name] for name in shared}
