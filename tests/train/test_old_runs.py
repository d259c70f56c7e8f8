"""Run directories made by version 0.1.0 still translate, evaluate and resume.

They are in `old_runs/`; README.md there says how they were recorded. Processors add in different
orders, so numbers are compared with a tolerance.
"""

import json
import re
import shutil
from pathlib import Path

import pytest
import torch
from conftest import ROOT

from dynconv.cli import main
from dynconv.train.events import read_log

RECORDED = ROOT / "tests" / "train" / "old_runs"
EXPECTED = RECORDED / "expected"
NAMES = ("translation", "plateau", "language")


@pytest.fixture
def old(tmp_path, monkeypatch) -> Path:
    """A copy of the runs to work in; their recipes name the corpus `text` relative to it."""
    folder = shutil.copytree(RECORDED, tmp_path / "old")
    monkeypatch.chdir(folder)
    # They were recorded on a CPU, and a GPU would draw another dropout mask.
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    return folder


def validations(events: list[dict]) -> dict[int, float]:
    """The loss of each validation by the update it followed."""
    return {e["update"]: e["loss"] for e in events if e["event"] == "valid"}


def recorded_events(name: str) -> list[dict]:
    """log.jsonl as the version that recorded the run went on to write it."""
    lines = (EXPECTED / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize("name", NAMES)
def test_the_record_is_of_the_old_format(name):
    """Runs that a later version recorded again would not test what these do."""
    (meta,) = RECORDED.glob(f"{name}/checkpoints/*/meta.json")
    assert json.loads(meta.read_text(encoding="utf-8"))["format"] == "dynconv checkpoint 3"
    recipe = (RECORDED / name / "recipe.yaml").read_text(encoding="utf-8")
    assert re.search(r"^    kernel:", recipe, re.MULTILINE)


def test_an_old_run_translates_as_before(old):
    arguments = ["--checkpoint", "000050", "--input", "text/test.de", "--output", "out.txt"]
    assert main(["translate", "translation", *arguments]) == 0
    ours = (old / "out.txt").read_text(encoding="utf-8").splitlines()
    theirs = (EXPECTED / "translation.txt").read_text(encoding="utf-8").splitlines()
    differing = [pair for pair in zip(ours, theirs, strict=True) if pair[0] != pair[1]]
    # After 50 updates two hypotheses can score so nearly the same that rounding decides.
    assert len(differing) <= len(theirs) // 10, differing


def test_an_old_run_scores_as_before(old, capsys):
    assert main(["evaluate", "language", "--checkpoint", "000010"]) == 0
    found = re.findall(r"[\d.]+ per (?:word|token)\b", capsys.readouterr().out)
    per_word, per_token = (float(text.split()[0]) for text in found)
    recorded = json.loads((EXPECTED / "language.json").read_text(encoding="utf-8"))
    assert per_word == pytest.approx(recorded["per word"], rel=1e-3)
    assert per_token == pytest.approx(recorded["per token"], rel=1e-3)


@pytest.mark.parametrize("name", NAMES)
def test_the_same_command_resumes(old, name):
    """The optimizer's moments, the place in the text and the random draws are restored.

    Without any one of them the loss of the last validation is another.
    """
    assert main(["train", f"{name}.yaml", "--run", name]) == 0
    ours, theirs = validations(read_log(old / name)), validations(recorded_events(name))
    assert list(ours) == list(theirs)
    last = list(theirs)[-1]
    assert ours[last] == pytest.approx(theirs[last], rel=1e-3)


def test_a_plateau_resumes_at_the_rate_it_had_reached(old):
    """The rate fell after each validation since the second, which log.jsonl alone records.

    0.5, then 0.05, 0.005, 0.0005, and 0.00005 from the checkpoint on.
    """
    assert main(["train", "plateau.yaml", "--run", "plateau"]) == 0
    rates = {e["update"]: e["lr"] for e in read_log(old / "plateau") if e["event"] == "train"}
    assert rates == pytest.approx({20: 0.5, 40: 0.005, 60: 0.00005})
