"""The command line, as a user meets it: results, exit codes and one-line errors."""

import argparse
import ast
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from importlib import metadata
from pathlib import Path

import pytest
from conftest import ROOT
from helpers.commands import fails
from helpers.forked import Forked, execute
from helpers.ranks import TRAIN, start_training

from dynconv import cli
from dynconv.cli import estimate
from dynconv.cli.missing_package import explain_missing, how_to_install
from dynconv.config import load_recipe
from dynconv.score.metric import METRICS
from dynconv.train import train
from dynconv.train.checkpoint_store import CheckpointStore
from dynconv.train.events import read_log

COMMAND = [sys.executable, "-m", "dynconv"]


@pytest.fixture
def run(recipe, tmp_path) -> Path:
    train(recipe, tmp_path / "run")
    return tmp_path / "run"


def test_train_translate_evaluate_score_plot_bench(recipe_file, corpus, tmp_path, capsys):
    run = tmp_path / "run"
    overrides = "train.lr=2e-3", "train.seed=3"
    assert cli.main(["train", str(recipe_file), overrides[0], "--run", str(run), overrides[1]]) == 0
    said, reported = capsys.readouterr()
    assert str(run) in said
    first = (corpus / "valid.de").read_text(encoding="utf-8").splitlines()[0]
    assert f"    {first} -> " in reported, "what the model makes of a sentence at each validation"
    config = load_recipe(run / "recipe.yaml").train
    assert (config.lr, config.seed) == (2e-3, 3)

    source, output = corpus / "test.de", tmp_path / "out.en"
    arguments = ["--input", str(source), "--output", str(output), "--beam", "3"]
    assert cli.main(["translate", str(run), *arguments]) == 0
    assert len(output.read_text(encoding="utf-8").splitlines()) == 20

    assert cli.main(["evaluate", str(run), "--split", "test", "--lenpen", "0.6"]) == 0
    text = capsys.readouterr().out
    assert text.count("source     ") == text.count("output     ") == 10
    assert "BLEU = " in text and "chrF2 = " in text and "version:" in text
    scores = json.loads((run / "test.scores.json").read_text())
    assert scores["lenpen"] == 0.6 and scores["sentences"] == 20
    assert cli.main(["evaluate", str(run), "decode.max_tokens=2", "--beam", "1"]) == 0
    scores = json.loads((run / "test.scores.json").read_text())
    assert scores["max_tokens"] == 2 and scores["beam"] == 1 and scores["lenpen"] == 1
    outputs = (run / "test.hypotheses.txt").read_text(encoding="utf-8").splitlines()
    assert len(outputs) == 20 and all(len(line.split()) < 2 for line in outputs)

    assert cli.main(["score", str(corpus / "test.en"), str(corpus / "test.en")]) == 0
    assert "BLEU = 100.00" in capsys.readouterr().out
    metrics = [text for name in METRICS for text in ("--metric", name)]
    assert cli.main(["score", *metrics, str(corpus / "test.en"), str(corpus / "test.en")]) == 0
    names = [line.split(" = ")[0] for line in capsys.readouterr().out.splitlines()]
    assert names.count("BLEU") == 1 and {"BLEU, compounds split", "ROUGE mean"} < {*names}
    with pytest.raises(SystemExit):
        cli.main(["score", "--help"])
    shown = " ".join(capsys.readouterr().out.split()).replace("- ", "-")
    assert not [name for name in METRICS if not re.search(rf"[ ,]{name}[ ,;]", shown)]

    assert cli.main(["plot", str(run)]) == 0
    assert (run / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert cli.main(["plot", str(run), "--output", str(tmp_path / "curves.SVG")]) == 0
    assert "<svg" in (tmp_path / "curves.SVG").read_text()
    line = fails(capsys, "plot", run, "--output", tmp_path / "curves.txt")
    assert "curves.txt: no format for figures: end its name in .png, .svg or .pdf" in line
    assert not list(tmp_path.glob("curves.txt*"))

    bench = ["bench", "decode", str(run), "--sentences", "4", "--rounds", "2"]
    assert cli.main([*bench, "--output", str(tmp_path / "decode.json")]) == 0
    assert "4 of 4 translations are equal" in capsys.readouterr().out
    written = json.loads((tmp_path / "decode.json").read_text())
    assert written["command"].startswith(f"dynconv {' '.join(bench)} --checkpoint ")
    again = [*shlex.split(written["command"])[1:], "--output", str(tmp_path / "decode.json")]
    assert cli.main([*again[:-2], "decode.dictionary=x", *again[-2:]]) == 2  # has no effect
    assert cli.main(again) == 0
    measured = written["numbers"]
    assert measured["sentences"] == measured["equal"] == 4
    assert all(len(measured[f"{name}_range"]) == 2 for name in ("incremental_s", "recompute_s"))


def test_evaluate_cuts_an_output_that_repeats_itself(run, capsys, monkeypatch):
    monkeypatch.setattr("dynconv.tasks.translation.translate", lambda *_, **__: ["n" * 999] * 20)
    assert cli.main(["evaluate", str(run)]) == 0
    outputs = re.findall("^output     (.*)$", capsys.readouterr().out, re.MULTILINE)
    assert {*outputs} == {"n" * 200 + "..."}
    assert "n" * 999 in (run / "test.hypotheses.txt").read_text()


def test_bench_decode_reads_the_text_that_evaluate_reads(
    recipe_file, corpus, tmp_path, monkeypatch
):
    """That of the run, also from a directory in which the recipe's relative name means nothing."""
    run = tmp_path / "run"
    monkeypatch.chdir(corpus.parent)
    assert (
        cli.main(["train", str(recipe_file), f"data.corpus={corpus.name}", "--run", str(run)]) == 0
    )
    monkeypatch.chdir(tmp_path)
    assert cli.main(["evaluate", str(run)]) == 0
    bench = ["bench", "decode", str(run), "--sentences", "2", "--rounds", "1"]
    assert cli.main([*bench, "--output", "decode.json"]) == 0


def test_prepare_and_train_with_it(recipe_file, corpus, tmp_path, capsys):
    out = tmp_path / "prepared"
    prepare = ["data", "prepare", str(corpus), "--suffixes", "de", "en", "--out", str(out)]
    assert cli.main([*prepare, "--vocab-size", "320"]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"{out}: 400 lines, ")
    keys = [word for word in said.split() if "=" in word]
    assert cli.main(["train", str(recipe_file), *keys, "--run", str(tmp_path / "run")]) == 0
    assert not (tmp_path / "run" / "data").exists()
    assert cli.main(["translate", str(tmp_path / "run"), "--input", str(corpus / "test.de")]) == 0
    assert cli.main(["evaluate", str(tmp_path / "run")]) == 0  # the test split is there, too
    again = [*prepare[:-1], str(tmp_path / "again"), "--reuse", str(out / "vocabulary.json")]
    assert cli.main(again) == 0  # with as many types as that has
    assert "model.vocab_size=320" in capsys.readouterr().out
    line = fails(capsys, *prepare[:-1], tmp_path / "three", "--vocab-size", "300", "301", "302")
    assert "vocab_size 300 301 302: one value, or two, not more" in line
    line = fails(capsys, "train", recipe_file, f"data.corpus={out}", "--run", tmp_path / "other")
    assert (
        "prepared with model.vocab_size=320, but the recipe has 300: give model.vocab_size=320"
        in line
    )
    assert not (tmp_path / "other").exists()
    other = [key for key in keys if "data.vocabulary" not in key] + ["data.vocabulary=words"]
    line = fails(capsys, "train", recipe_file, *other, "--run", tmp_path / "other")
    assert "data.vocabulary=bytes, but the recipe has words: give data.vocabulary=bytes" in line
    other = [key for key in keys if "data.source" not in key] + ["data.source=fr"]
    line = fails(capsys, "train", recipe_file, *other, "--run", tmp_path / "other")
    assert "prepared with data.source=de, but the recipe has fr: give data.source=de" in line


def test_prepare_a_shipped_corpus_by_name(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["data", "prepare", "libreoffice-fr-en", "--vocab-size", "1000"]) == 0
    assert "prepared/libreoffice-fr-en: 26,377 lines" in capsys.readouterr().out
    assert (tmp_path / "prepared" / "libreoffice-fr-en" / "test.fr").exists()
    assert "its suffixes are not known" in fails(capsys, "data", "prepare", tmp_path)


def test_estimate_prints_every_row_and_refuses_a_negative_memory(recipe_file, capsys):
    assert (
        cli.main(
            ["estimate", str(recipe_file), "--gpus", "2", "--memory", "1", "--tokens-per-s", "9"]
        )
        == 0
    )
    said = capsys.readouterr().out
    for row in ("parameters", "optimizer", "activations", "one update", "epoch", "hours"):
        assert f"\n{row} " in f"\n{said}"
    assert "--memory: -1 must be a number above 0" in fails(
        capsys, "estimate", recipe_file, "--memory", "-1"
    )


def test_a_long_estimate_says_that_it_is_at_work(recipe_file, capsys, monkeypatch):
    monkeypatch.setattr(estimate, "PATIENCE", 0.0)
    assert cli.main(["estimate", str(recipe_file), "--memory", "0.1"]) == 0
    assert capsys.readouterr().err.strip() == estimate.WAITING


def test_translate_reads_stdin_and_writes_a_line_for_each_line(run):
    text = "ein und zwanzig\n\nzwei und dreißig\n"
    done = subprocess.run(
        [*COMMAND, "translate", run], input=text, capture_output=True, encoding="utf-8"
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.split("\n")
    assert len(lines) == 4 and lines[1] == lines[3] == ""
    assert done.stderr == ""  # no progress bar in a pipe


@pytest.mark.parametrize("kind", ["socket", "pipe", "/dev/null"])
def test_translate_reads_any_standard_input(run, kind, monkeypatch, capsys):
    """A socket cannot be opened by a name; nothing in gives nothing out."""
    text = b"" if kind == "/dev/null" else "ein und dreißig\n".encode()
    if kind == "socket":
        ours, theirs = socket.socketpair()
        ours.sendall(text)
        ours.close()
        descriptor = theirs.detach()
    else:
        descriptor = pipe_with(text) if text else os.open(os.devnull, os.O_RDONLY)
    with open(descriptor, encoding="utf-8") as standard_input:
        monkeypatch.setattr(sys, "stdin", standard_input)
        assert cli.main(["translate", str(run)]) == 0
    assert capsys.readouterr().out.count("\n") == text.count(b"\n")


def pipe_with(text: bytes) -> int:
    """The end of a pipe from which this text can be read."""
    reading, writing = os.pipe()
    os.write(writing, text)
    os.close(writing)
    return reading


def test_standard_input_that_is_not_utf_8_is_reported(run, monkeypatch, capsys):
    with open(pipe_with(b"gut\n\xff\n"), encoding="utf-8") as standard_input:
        monkeypatch.setattr(sys, "stdin", standard_input)
        error = fails(capsys, "translate", run)
    assert error.startswith("dynconv: standard input, line 2: not valid UTF-8")


def test_translate_an_empty_file_into_one(run, tmp_path):
    empty, output = tmp_path / "empty.de", tmp_path / "out.en"
    empty.touch()
    output.write_text("of before\n")
    assert cli.main(["translate", str(run), "--input", str(empty), "--output", str(output)]) == 0
    assert output.read_bytes() == b""
    assert sorted(tmp_path.glob("out*")) == [output]  # the temporary file is gone


def test_over_long_lines_are_cut_with_a_warning(run, tmp_path, capsys):
    path = tmp_path / "long.de"
    path.write_text("kurz\n" + "sehr " * 2000 + "\n", encoding="utf-8")
    assert cli.main(["translate", str(run), "--input", str(path), "--beam", "1"]) == 0
    output, error = capsys.readouterr()
    assert output.count("\n") == 2
    assert "line 2 has" in error and "1024" in error


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("one line\n", "train.de has 400 lines but"),
        ("", "the file is empty"),
        (b"gut\n\xff\xfe\n", "train.en, line 2: not valid UTF-8"),
        (None, "train.en"),
    ],
    ids=["lengths", "empty", "utf-8", "missing"],
)
def test_bad_text_is_reported_before_anything_is_written(
    recipe_file, corpus, tmp_path, capsys, content, words
):
    folder = tmp_path / "corpus"
    folder.mkdir()
    for file in corpus.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    target = folder / "train.en"
    target.unlink()
    if content is not None:
        target.write_bytes(content if isinstance(content, bytes) else content.encode())
    run = tmp_path / "run"
    error = fails(capsys, "train", recipe_file, f"data.corpus={folder}", "--run", run)
    assert words in error and str(folder) in error
    assert not run.exists()


def test_bad_recipes(recipe_file, capsys):
    assert "did you mean lr?" in fails(capsys, "train", recipe_file, "train.lrr=1")
    assert "5 heads do not divide 32" in fails(capsys, "train", recipe_file, "model.heads=5")
    assert "no recipe 'nothing'" in fails(capsys, "train", "nothing")


def test_bad_files(run, tmp_path, capsys):
    nothing = tmp_path / "nothing"
    assert "no run directory" in fails(capsys, "translate", nothing)
    assert "no such file" in fails(capsys, "translate", run, "--input", nothing)
    assert "no such file" in fails(capsys, "score", nothing, nothing)
    assert "no run directory" in fails(capsys, "plot", nothing)
    assert "no checkpoint here" in fails(capsys, "translate", run, "--checkpoint", "7")
    bad = tmp_path / "bad.de"
    bad.write_bytes(b"\xff\n")
    assert "line 1: not valid UTF-8" in fails(capsys, "translate", run, "--input", bad)
    short = tmp_path / "short"
    short.write_text("one\n")
    bad.write_text("one\ntwo\n")
    assert "has 2 lines but" in fails(capsys, "score", bad, short)


def test_bad_checkpoints(run, recipe, tmp_path, capsys):
    path = run / "checkpoints" / "000010" / "model.safetensors"
    whole = path.read_bytes()
    path.write_bytes(whole[:500])
    assert str(path) in fails(capsys, "translate", run, "--checkpoint", "last")
    path.write_bytes(b"PK\x03\x04 something else")
    assert str(path) in fails(capsys, "evaluate", run, "--checkpoint", "last")
    other = tmp_path / "other"
    train(replace(recipe, model=replace(recipe.model, ffn=48)), other)
    shutil.copytree(other / "checkpoints/000010", path.parent, dirs_exist_ok=True)
    assert "another recipe" in fails(capsys, "translate", run, "--checkpoint", "last")


def test_the_run_of_another_recipe(recipe_file, tmp_path, capsys):
    run = str(tmp_path / "run")
    assert cli.main(["train", str(recipe_file), "--run", run]) == 0
    assert "train.seed 2, not 1" in fails(
        capsys, "train", recipe_file, "train.seed=2", "--run", run
    )


def test_a_disk_that_is_full_while_saving(recipe_file, tmp_path):
    """The system refuses to write files beyond 300 KB: vocabulary and log fit, a state does not."""
    run = tmp_path / "run"
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000));"
    said, arguments = tmp_path / "error", [recipe_file, "--run", run, "model.ffn=300"]
    limited = Forked(execute, limit + TRAIN, *map(str, arguments), output={2: said})
    assert limited.wait(timeout=60) == 2
    error = said.read_text().splitlines()[-1]
    assert error.startswith(f"dynconv: {run}/checkpoints/000005: cannot be written (")
    assert "Traceback" not in said.read_text()
    assert list((run / "checkpoints").iterdir()) == []
    assert cli.main(["train", str(recipe_file), "--run", str(run), "model.ffn=300"]) == 0
    assert CheckpointStore(run).choose("last").meta["update"] == 10


def test_ctrl_c_saves_and_the_same_command_goes_on(recipe_file, tmp_path):
    run = tmp_path / "run"
    arguments = ["train.updates=100000", "train.checkpoint_every=100000"]
    updates = []
    for _ in range(2):
        said = tmp_path / "error"
        process = start_training(1, said, recipe_file, *arguments, "--run", run)
        before = updates[-1] if updates else 0
        while not (run / "log.jsonl").exists() or not any(
            event["update"] > before for event in read_log(run)
        ):
            assert process.poll() is None, said.read_text()
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 130
        error = said.read_text()
        assert "saved; the same command continues" in error and "Traceback" not in error
        updates.append(CheckpointStore(run).choose("last").meta["update"])
    assert 0 < updates[0] < updates[1]
    logged = [event["update"] for event in read_log(run)]
    assert logged == sorted(set(logged))


def test_ctrl_c_while_torch_is_imported_is_one_line(tmp_path):
    """PyTorch's C++ code turns a KeyboardInterrupt into an abort or an ImportError."""
    fake = """import os, signal
try:
    (lambda: os.kill(os.getpid(), signal.SIGINT))()  # a callback of that code
except KeyboardInterrupt:
    raise ImportError("KeyboardInterrupt: <EMPTY MESSAGE>")
"""
    (tmp_path / "torch.py").write_text(fake, encoding="utf-8")
    command = [sys.executable, "-m", "dynconv", "doctor"]
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    done = subprocess.run(
        command, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (130, "dynconv: interrupted\n")


@pytest.mark.parametrize("arguments", [[], ["data"], ["bench"], ["train"]])
def test_incomplete_commands_show_their_usage(arguments, capsys):
    with pytest.raises(SystemExit) as exit:
        cli.main(arguments)
    assert exit.value.code == 2
    assert "usage: dynconv" in capsys.readouterr().err


def commands(parser=None, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The words of every command, beginning with those of none: `dynconv` itself."""
    yield words
    for action in (parser or cli.make_parser())._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, inner in action.choices.items():
                yield from commands(inner, (*words, name))


def test_every_command_has_help(capsys):
    found = list(commands())
    assert {(), ("doctor",), ("data", "fetch"), ("bench", "ops"), ("train",)} <= set(found)
    for words in found:
        with pytest.raises(SystemExit) as exit:
            cli.main([*words, "--help"])
        assert exit.value.code == 0
        text = " ".join(capsys.readouterr().out.split())
        assert text.startswith(" ".join(["usage: dynconv", *words, "[-h]"]))
        assert "%%" not in text
        assert ("--checkpoint NAME" in text) == ("last, which is the average" in text)


@pytest.fixture
def declared(monkeypatch) -> None:
    """What pyproject.toml declares today; an editable install knows what it declared then."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    tune = project["optional-dependencies"]["tune"]
    lines = [*project["dependencies"], *(f'{line}; extra == "test"' for line in tune)]  # as a wheel
    for extra, needed in project["optional-dependencies"].items():
        lines += [f'{line}; extra == "{extra}"' for line in needed]
    monkeypatch.setattr(metadata, "requires", {"dynconv": lines}.get)


@pytest.mark.parametrize(
    ("module", "remedy"),
    [
        ("yaml", "yaml is not installed: pip install pyyaml"),
        ("rouge_score", "rouge_score is not installed: pip install rouge-score"),
        ("pydantic.types", "pydantic is not installed: pip install pydantic"),
        ("cupy.cuda", "cupy is not installed: pip install 'dynconv[gpu]'"),
        ("optuna", "optuna is not installed: pip install 'dynconv[tune]'"),
        ("jieba", "jieba is not installed: pip install 'dynconv[chinese]'"),
        ("fcntl", "this needs Python's module fcntl, which Windows lacks: use WSL"),
        ("_lzma", "this Python was built without its own module _lzma: install a complete one"),
        ("nltk", "nltk is not installed: pip install --force-reinstall dynconv"),
    ],
)
def test_a_missing_module_is_reported_with_the_package_to_install(declared, module, remedy):
    assert re.fullmatch(remedy.replace("[", r"\["), explain_missing(module))


def test_every_module_that_the_package_imports_is_in_a_package_that_it_declares(declared):
    trees = [ast.parse(path.read_text()) for path in Path(cli.__file__).parents[1].rglob("*.py")]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in nodes if isinstance(node, ast.ImportFrom)}
    tops = {name.partition(".")[0] for name in names} - set(sys.stdlib_module_names) - {"dynconv"}
    assert {"torch", "yaml", "jieba"} <= tops
    assert not {name for name in tops if "--force-reinstall" in how_to_install(name)}


def test_a_command_that_misses_a_module(recipe_file, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "yaml", None)  # importing it raises ModuleNotFoundError
    assert "yaml is not installed: pip install pyyaml" in fails(capsys, "estimate", recipe_file)


def test_help_names_a_default_once(capsys):
    with pytest.raises(SystemExit):
        cli.main(["estimate", "--help"])
    assert "default: 80, that" not in " ".join(capsys.readouterr().out.split())


def test_help_imports_neither_torch_nor_numpy_and_takes_no_time():
    """Python's own start is not counted; on a quiet machine help takes 0.1 s."""
    program = f"""
import sys, time
start = time.process_time()
from dynconv import cli
from dynconv.cli.missing_package import explain_missing, how_to_install
for words in {list(commands())}:
    try:
        cli.main([*words, "--help"])
    except SystemExit:
        pass
print(sorted({{"torch", "numpy", "pydantic", "yaml", "tqdm"}} & set(sys.modules)), file=sys.stderr)
print(time.process_time() - start, file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, encoding="utf-8")
    modules, seconds = done.stderr.splitlines()
    assert modules == "[]"
    assert float(seconds) < 0.5  # all of them together


def test_a_command_without_a_recipe_loads_no_recipes():
    program = "import sys; from dynconv import cli; cli.main(['data', 'list']); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, encoding="utf-8")
    loaded = done.stdout.splitlines()[-1].split()
    assert "dynconv.cli" in loaded and not {"pydantic", "dynconv.config"} & set(loaded)


def test_unknown_options_are_refused(recipe_file, capsys):
    with pytest.raises(SystemExit):
        cli.main(["train", str(recipe_file), "--beam", "5"])
    assert "unrecognized arguments: --beam" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "remedy"),
    [
        (
            ["train", "x", "--updates", "3"],
            "have no dashes: train.updates=...: dynconv train --help",
        ),
        (["train", "x", "--lr", "3"], "have no dashes: train.lr=...: dynconv train --help"),
        (["train", "x", "--seed=3"], "have no dashes: train.seed="),
        (["train", "x", "--train.lr=3"], "have no dashes: train.lr="),
        (
            ["train", "x", "--batch-tokens", "3"],
            "train.batch_tokens=... or decode.batch_tokens=...",
        ),
        (["train", "x", "--learning", "3"], "have no dashes: train.lr=5e-4: dynconv"),
        (["train", "x", "--run_dir", "y"], "did you mean --run-dir?"),
        (["translate", "x", "--bean", "3"], "did you mean --beam?: dynconv translate --help"),
        (["evaluate", "x", "--limit", "20"], "have no dashes: decode.min_tokens=3: dynconv eval"),
        (["evaluate", "x", "--max-tokens", "20"], "no dashes: decode.max_tokens=...: dynconv eval"),
        (["data", "list", "x"], "arguments: x: dynconv data list --help"),
    ],
)
def test_an_unknown_option_is_answered_with_what_it_may_be(arguments, remedy, capsys):
    with pytest.raises(SystemExit):
        cli.main(arguments)
    assert remedy in capsys.readouterr().err


def test_doctor_and_data_list(capsys):
    assert cli.main(["doctor"]) == 0
    text = capsys.readouterr().out
    assert " taps if K <= 3 and T >= 11, else band if T <= 64, else blocked" in text
    assert "torch" in text
    assert cli.main(["data", "list"]) == 0
    assert "libreoffice-de-en" in capsys.readouterr().out


def test_dry_run_prints_the_resolved_recipe(recipe_file, recipe, tmp_path, capsys):
    assert cli.main(["train", str(recipe_file), "--dry-run", "train.seed=4"]) == 0
    path = tmp_path / "resolved.yaml"
    path.write_text(capsys.readouterr().out)
    assert load_recipe(path) == replace(recipe, train=replace(recipe.train, seed=4))


@pytest.mark.parametrize(
    ("variables", "says"),
    [
        ({}, True),
        ({"RANK": "1"}, True),  # of another launcher: training knows only torchrun's ranks
        ({"RANK": "0", "TORCHELASTIC_RUN_ID": "of torchrun"}, True),
        ({"RANK": "1", "TORCHELASTIC_RUN_ID": "of torchrun"}, False),
    ],
)
def test_rank_zero_says_where_the_run_is(recipe_file, variables, says, monkeypatch, capsys):
    for name in ("RANK", "TORCHELASTIC_RUN_ID"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("dynconv.train.train", lambda recipe, run: None)
    assert cli.main(["train", str(recipe_file), "--run", "here"]) == 0
    assert ("run directory: here" in capsys.readouterr().out) == says
