"""Killed at any moment, a run goes on and ends with the weights of one that was not, bit for bit.

Here with a few random kills; DYNCONV_KILLS=50 pytest -s tests/train/test_kills.py makes as many.
"""

import os
import random
import shutil
import stat
import time
from dataclasses import replace

import psutil
import pytest
import torch
from helpers.ranks import TRAIN, run_ranks, start_training
from helpers.training import weights

from dynconv import cli
from dynconv.train import train
from dynconv.train.events import read_log

KILLS = int(os.environ.get("DYNCONV_KILLS", "2"))


def same(a: dict, b: dict) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def validations(run) -> list:
    return [event for event in read_log(run) if event["event"] == "valid"]


class Killed(BaseException):
    """Nobody catches it: what lies on the disk then is what a kill leaves."""


STEPS = [(os, "fsync"), (os, "replace"), (shutil, "rmtree")]


def lose_half(descriptor: int) -> None:
    """Leave only the first half of a file that is not on the disk yet."""
    status = os.fstat(descriptor)
    if stat.S_ISREG(status.st_mode):
        os.ftruncate(descriptor, status.st_size // 2)


def die_at(step: int, patch) -> list[str]:
    """Stop at the n-th thing that training does to the disk, in the middle of it if it writes."""
    counted = []

    def counting(function, name):
        def call(target, *more, **options):
            counted.append(name)
            if 0 < step <= len(counted):  # afterwards it does nothing more, so it cleans up nothing
                if step == len(counted) and name == "fsync":
                    lose_half(target)
                if step == len(counted) and name == "rmtree":
                    (target / "model.safetensors").unlink(missing_ok=True)
                raise Killed
            return function(target, *more, **options)

        return call

    for module, name in STEPS:
        patch.setattr(module, name, counting(getattr(module, name), name))
    return counted


def test_a_kill_at_every_step_of_every_save(recipe, prepared, tmp_path, monkeypatch, capsys):
    few = replace(recipe.train, updates=6, checkpoint_every=2, keep_checkpoints=1)
    recipe = replace(recipe, train=few, data=replace(recipe.data, corpus=str(prepared.directory)))
    with monkeypatch.context() as patch:
        steps = die_at(0, patch)
        train(recipe, tmp_path / "whole")
    assert set(steps) == {name for _, name in STEPS}
    whole = weights(tmp_path / "whole")
    for step in range(1, len(steps) + 1):
        run = tmp_path / f"{step}"
        with monkeypatch.context() as patch, pytest.raises(Killed):
            die_at(step, patch)
            train(recipe, run)
        assert train(recipe, run) is None
        assert same(weights(run), whole), steps[step - 1]
        assert validations(run) == validations(tmp_path / "whole")
    assert "going back" not in capsys.readouterr().err  # nothing half done counts as a checkpoint


@pytest.mark.parametrize("processes", [1, 2])
def test_kills_at_random_moments(prepared_recipe_file, tmp_path, processes):
    """kill -9 of the process, or of one of two; in either case the same command goes on."""
    settings = "train.updates=150", "train.checkpoint_every=3", "train.keep_checkpoints=2"
    draw = random.Random(processes)
    kills, finished, saving, code = 0, 0, 0, None
    reference = tmp_path / "reference"
    whole = [str(prepared_recipe_file), *settings, f"--run-dir={reference}"]
    if processes == 1:
        assert cli.main(["train", *whole]) == 0
    else:
        assert run_ranks(processes, tmp_path, TRAIN, *whole).returncode == 0
    while kills < KILLS or code != 0:
        run = tmp_path / f"run{finished}"
        log = run / "log.jsonl"
        before = log.stat().st_ino if log.exists() else None  # a start replaces the file
        error = tmp_path / "error"
        going = start_training(
            processes, error, prepared_recipe_file, *settings, f"--run-dir={run}"
        )
        if kills < KILLS:
            while going.poll() is None and (not log.exists() or log.stat().st_ino == before):
                time.sleep(0.01)
            time.sleep(draw.uniform(0, 1))
            if going.poll() is None:
                agent = psutil.Process(going.pid)
                victims = [agent] if processes == 1 else agent.children()
                if victims:  # the agent may have none any more
                    draw.choice(victims).kill()
                    kills += 1
        code = going.wait(timeout=120)
        assert code is not None
        saving += any((run / "checkpoints").glob("*.part"))
        assert processes > 1 or "Error" not in error.read_text()  # the agent prints its own
        if code == 0:
            assert same(weights(run), weights(reference))
            assert validations(run) == validations(reference)
            finished += 1
    print(f"{kills} kills, {saving} of them while saving; {finished} runs ended as they should")
