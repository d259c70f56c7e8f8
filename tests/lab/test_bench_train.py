"""`dynconv bench train`: every part of an update has its time, and the record says of what."""

import json
import time
from dataclasses import replace
from itertools import islice

import pytest
import torch
from helpers.commands import fails
from helpers.training import StoppingWatch

from dynconv import cli
from dynconv.lab.bench import train as module
from dynconv.train.data import DataPosition, iter_updates
from dynconv.train.distributed import World
from dynconv.train.precision import AUTOCAST_DTYPES


@pytest.mark.parametrize("text", [[], ["--synthetic", "300"]])
def test_bench_train(recipe_file, tmp_path, capsys, monkeypatch, text):
    monkeypatch.setattr(module, "SIDE", 64)
    output = tmp_path / "bench.json"
    arguments = [
        "bench",
        "train",
        str(recipe_file),
        "--updates",
        "6",
        "--output",
        str(output),
        *text,
    ]
    assert cli.main(arguments) == 0
    shown = capsys.readouterr().out
    record = json.loads(output.read_text(encoding="utf-8"))
    assert record["command"].startswith(f"dynconv bench train {recipe_file} --updates 6")
    found = record["numbers"]
    assert found["seconds"].keys() == {"data", "forward", "backward", "optimizer", "log"}
    assert all(seconds > 0 for seconds in found["seconds"].values())
    assert found["recipe"] == "tiny" and found["precision"] == "float32" and found["updates"] == 6
    assert found["synthetic_pairs"] == (300 if text else None)
    assert found["update_s"] == pytest.approx(sum(found["seconds"].values()))
    speed = found["target_tokens_per_update"] / found["update_s"]
    assert found["target_tokens_per_s"] == pytest.approx(speed)
    assert found["flop_per_s"] == pytest.approx(found["flop_per_target_token"] * speed)
    for words in ("forward", "target tokens/s", "the loop itself", f"written to {output}"):
        assert words in shown


@pytest.mark.parametrize("entry", ["updates", "warmup", "average_checkpoints"])
def test_an_entry_that_the_measurement_decides_is_refused(entry, recipe_file, capsys):
    message = fails(capsys, "bench", "train", recipe_file, f"train={{{entry}: 3}}")
    assert f"train.{entry} has no effect: only updates at full rate are measured, as" in message


def test_times_of_a_stopped_training_are_not_written(recipe_file, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(module, "make_stopwatches", lambda device: [StoppingWatch(4)])
    output = tmp_path / "bench.json"
    arguments = "bench", "train", str(recipe_file), "--updates", "6", "--output", str(output)
    assert cli.main([*arguments]) == 2
    assert "dynconv: stopped by SIGINT: nothing was measured" in capsys.readouterr().err
    assert not output.exists()


def test_the_speed_on_a_gpu_is_of_updates_that_wait_for_nothing(recipe_file, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "SIDE", 64)
    gpu, waits = torch.device("cuda"), []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: waits.append(time.sleep(0.02)))
    watches = module.make_stopwatches(gpu)
    assert len(watches) == 2 and module.peak_side(gpu) == 128
    monkeypatch.setattr(module, "make_stopwatches", lambda device: watches)
    output = tmp_path / "bench.json"
    assert cli.main(["bench", "train", str(recipe_file), f"--output={output}", "--updates=4"]) == 0
    found = json.loads(output.read_text(encoding="utf-8"))["numbers"]
    parts = sum(found["seconds"].values())
    assert len(waits) > 5 * 14 and parts > 5 * 0.02 and found["update_s"] < parts


def test_a_language_model_trains_on_random_words_without_a_source(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "SIDE", 64)
    output = tmp_path / "bench.json"
    small = ["model.vocab_size=300", "model.channels=8", "model.ffn=8", "model.heads=2"]
    options = ["--updates", "5", "--synthetic", "60", "--output", str(output)]
    assert cli.main(["bench", "train", "austen-dynamic", *small, *options]) == 0
    assert json.loads(output.read_text(encoding="utf-8"))["numbers"]["synthetic_pairs"] == 60


def test_the_arithmetic_is_that_of_the_matrix_products(recipe, pairs):
    """Forward and backward: three products of as many operations, 2 a weight and position."""
    some = list(islice(iter_updates(pairs, 256, recipe.train, DataPosition(), World()), 2))
    counted = module.count_flops(recipe, some, World())
    wider = replace(recipe, model=replace(recipe.model, ffn=2 * recipe.model.ffn))
    C, F = recipe.model.channels, recipe.model.ffn
    positions = sum(
        batch.source.numel() + batch.prefix.numel() for w in some for batch in w.batches
    )
    assert module.count_flops(wider, some, World()) - counted == 3 * 2 * positions * 2 * C * F


def test_the_peak_is_of_the_precision(monkeypatch):
    monkeypatch.setattr(module, "SIDE", 64)
    seen = []
    product = torch.mm
    monkeypatch.setattr(torch, "mm", lambda a, b: seen.append(a.dtype) or product(a, b))
    for precision in ("float32", "bfloat16"):
        assert module.measure_peak(precision, torch.device("cpu")) > 1e6
        assert set(seen) == {AUTOCAST_DTYPES.get(precision, torch.float32)}
        seen.clear()
