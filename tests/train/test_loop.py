"""The training loop: resuming, stopping, what a run directory holds, and what is refused."""

import json
import os
import re
import signal
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from types import SimpleNamespace

import pytest
import torch
from helpers.schema import bounds
from helpers.training import StoppingWatch, weights

from dynconv import cpu_memory
from dynconv.config import TrainConfig, load_recipe
from dynconv.errors import UserError
from dynconv.text import Pairs, open_prepared
from dynconv.train import TrainedModel, load_model, log, train
from dynconv.train.checkpoint import Checkpoint
from dynconv.train.checkpoint_store import CheckpointStore
from dynconv.train.data import DataPosition, count_too_long, iter_updates
from dynconv.train.distributed import World
from dynconv.train.events import read_log
from dynconv.train.saving import CheckpointSaver
from dynconv.train.stopwatch import Stopwatch


def test_five_updates_and_five_more_are_ten(recipe, tmp_path):
    """Bit for bit, with dropout: weights, moments, random numbers and place are all restored."""
    train(recipe, tmp_path / "whole")
    assert train(recipe, tmp_path / "parts", StoppingWatch(5)) == signal.SIGINT
    torch.rand(7)  # the generator has moved on, as in a new process
    assert train(recipe, tmp_path / "parts") is None
    a, b = (weights(tmp_path / name, "000010") for name in ("whole", "parts"))
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert [e["update"] for e in read_log(tmp_path / "parts")] == [5, 10]


def test_a_program_that_trains_reuses_freed_memory_as_the_command_does(
    recipe, tmp_path, monkeypatch
):
    calls: list[tuple[int, int]] = []
    libc = SimpleNamespace(mallopt=lambda name, value: calls.append((name, value)) or 1)
    monkeypatch.setattr(cpu_memory, "ctypes", SimpleNamespace(CDLL=lambda name: libc))
    monkeypatch.setattr(cpu_memory.sys, "platform", "linux")
    monkeypatch.setenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "")  # restored after the test
    monkeypatch.delenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY")
    train(replace(recipe, train=replace(recipe.train, updates=2)), tmp_path)
    assert calls == [(cpu_memory.M_MMAP_THRESHOLD, 2**30), (cpu_memory.M_TRIM_THRESHOLD, 2**31 - 1)]
    assert os.environ["ONEDNN_PRIMITIVE_CACHE_CAPACITY"] == "64"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_between_validations_saves(recipe, tmp_path, number):
    assert train(recipe, tmp_path, StoppingWatch(3, number)) == number
    (saved,) = CheckpointStore(tmp_path).list_readable()
    assert saved.meta["update"] == 3 and saved.meta["score"] is None
    assert train(recipe, tmp_path) is None
    assert CheckpointStore(tmp_path).choose("last").meta["update"] == 10


def test_a_program_can_train_in_a_thread(recipe, tmp_path):
    """Only the main thread can catch signals."""
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(train, recipe, tmp_path).result() is None
    assert CheckpointStore(tmp_path).choose("last").meta["update"] == 10


@pytest.mark.parametrize(("max_length", "batch_tokens"), [(20, 400), (256, 20), (256, 400)])
def test_pairs_that_are_too_long_are_reported(recipe, tmp_path, capsys, max_length, batch_tokens):
    recipe = replace(
        recipe,
        data=replace(recipe.data, max_example_tokens=max_length),
        train=replace(recipe.train, batch_tokens=batch_tokens, updates=2),
    )
    train(recipe, tmp_path)
    pairs = Pairs.from_corpus(open_prepared(tmp_path / "data", verify=False))
    long = int((pairs.lengths(range(400)).max(1) > min(max_length, batch_tokens)).sum())
    assert (long > 0) == (min(max_length, batch_tokens) == 20)
    said = f"{long} of 400 pairs are left out: a side has more than 20 tokens (data.max_example"
    assert (said in capsys.readouterr().err) == (long > 0)
    (start,) = json.loads((tmp_path / "environment.json").read_text())
    assert (start["examples"], start["left_out"]) == (400, long)


def test_the_longest_side_is_counted_with_eos():
    pairs = Pairs.from_ids([([5] * n, [5]) for n in (19, 20)])
    assert [count_too_long(pairs, limit) for limit in (21, 20, 19)] == [0, 1, 2]


def test_a_finished_run_has_no_time_left(recipe, tmp_path, capsys):
    """Also if its last validation is not a multiple of train.checkpoint_every."""
    train(replace(recipe, train=replace(recipe.train, updates=13, checkpoint_every=11)), tmp_path)
    early, last = re.findall("^update 1[13]: .*", capsys.readouterr().err, re.MULTILINE)
    assert early.endswith(" left") and not last.endswith(" left")


def test_without_a_terminal_a_line_says_how_far_training_is(recipe, tmp_path, capsys, monkeypatch):
    """Every SAY_EVERY seconds without another line."""
    train(recipe, tmp_path / "a")
    number = r"^update (\d+): training loss \d+\.\d\d\b"
    assert not re.findall(number, capsys.readouterr().err, re.MULTILINE)
    monkeypatch.setattr(log, "SAY_EVERY", 0.0)
    train(recipe, tmp_path / "b")
    said = re.findall(number, capsys.readouterr().err, re.MULTILINE)
    assert said == [str(n + 1) for n in range(recipe.train.updates)]


def test_events_of_lost_updates_are_dropped(recipe, tmp_path):
    """A killed run has logged more than it saved, and half a line."""
    train(recipe, tmp_path, StoppingWatch(5))
    with (tmp_path / "log.jsonl").open("a") as log:
        log.write(json.dumps({"event": "train", "update": 7}) + '\n{"event": "tra')
    train(recipe, tmp_path)
    assert [(e["event"], e["update"]) for e in read_log(tmp_path)] == [("valid", 5), ("valid", 10)]


def test_a_finished_run_is_left_as_it_is(recipe, tmp_path):
    train(recipe, tmp_path)
    before = (tmp_path / "log.jsonl").read_text()
    assert train(recipe, tmp_path) is None
    assert (tmp_path / "log.jsonl").read_text() == before


def test_the_run_of_another_recipe_is_refused(recipe, tmp_path):
    train(recipe, tmp_path)
    other = replace(recipe, train=replace(recipe.train, lr=0.125))
    with pytest.raises(UserError, match=r"another recipe \(train.lr 0.125, not 0.0005\)"):
        train(other, tmp_path)


def test_a_run_directory_holds_what_reproduces_it(recipe, tmp_path, monkeypatch):
    """Also the local part of a version, as in 2.11.0+cu130, which the package's metadata lack."""
    monkeypatch.setattr(torch, "__version__", torch.__version__ + ".local")
    train(recipe, tmp_path)
    assert {"recipe.yaml", "vocabulary.json", "environment.json", "log.jsonl", "checkpoints"} <= {
        path.name for path in tmp_path.iterdir()
    }
    (start,) = json.loads((tmp_path / "environment.json").read_text())
    assert start["torch"] == torch.__version__
    assert {"python", "commit", "device", "threads"} <= start.keys()
    assert list((tmp_path / "tensorboard").iterdir())
    trained = load_model(tmp_path)
    assert trained.recipe == recipe
    assert len(trained.vocabularies.target) == 300


@pytest.mark.parametrize(
    ("asked", "said"),
    [(2, "average of 2 checkpoints: "), (3, "average of 2 checkpoints, not 3, because there ")],
)
def test_the_average_is_the_mean_and_is_scored(recipe, asked, said, tmp_path, capsys):
    config = replace(recipe.train, average_checkpoints=asked)
    train(replace(recipe, train=config), tmp_path)
    assert said in capsys.readouterr().err
    a, b, mean = (weights(tmp_path, name) for name in ("000005", "000010", "average"))
    for name in mean:
        torch.testing.assert_close(mean[name], (a[name] + b[name]) / 2)
    assert CheckpointStore(tmp_path).choose("average").meta["score"] is not None
    assert CheckpointStore(tmp_path).choose("last").path.name == "average"


def test_a_run_that_is_extended_has_a_new_average(recipe, tmp_path):
    for updates in (10, 15):
        config = replace(recipe.train, average_checkpoints=2, updates=updates)
        train(replace(recipe, train=config), tmp_path)
        (tmp_path / "recipe.yaml").write_text(
            (tmp_path / "recipe.yaml").read_text().replace("updates: 10", "updates: 15")
        )
    a, b, mean = (weights(tmp_path, name) for name in ("000010", "000015", "average"))
    assert all(torch.allclose(mean[name], (a[name] + b[name]) / 2, atol=1e-7) for name in a)
    assert CheckpointStore(tmp_path).choose("last").path.name == "average"
    assert not list(tmp_path.glob("checkpoints/*.damaged*"))


def test_a_batch_has_no_more_sentences_than_asked(pairs, recipe):
    config = replace(recipe.train, batch_sentences=3)
    update = next(
        iter_updates(pairs, 256, config, DataPosition(), World(device=torch.device("cpu")))
    )
    assert len(update.batches[0].source) == 3


def test_the_run_directory_may_be_text(prepared_recipe, tmp_path):
    config = replace(prepared_recipe.train, updates=2)
    assert train(replace(prepared_recipe, train=config), str(tmp_path / "run")) is None
    assert load_model(str(tmp_path / "run")).recipe.train.updates == 2


def test_patience_ends_training(recipe, tmp_path):
    config = replace(recipe.train, updates=50, checkpoint_every=1, patience=2, lr=0.0, lr_start=0.0)
    assert train(replace(recipe, train=config), tmp_path) is None
    assert [e["update"] for e in read_log(tmp_path)] == [1, 2, 3]


RANGES = [
    (schedule, field.name, limit + {"gt": 1e-6, "lt": -1e-6}.get(bound, 0))
    for field in fields(TrainConfig)
    if (found := bounds(field.type))
    and found[0] is float
    and field.name not in ("betas", "timeout")
    for bound, limit in found[1].items()
    for schedule in ("inverse_sqrt", "cosine", "plateau")
    if schedule == "inverse_sqrt" or field.name.startswith("lr")
]


@pytest.mark.parametrize(("schedule", "name", "value"), RANGES)
def test_each_bound_of_train_is_refused_or_trains(schedule, name, value, recipe, tmp_path):
    """No accepted number makes a traceback, or a run that ends before its first update."""
    optimizer = "nag" if name == "momentum" else "adamw"
    changes = {name: value, "schedule": schedule, "optimizer": optimizer}
    short = {"updates": 1, "warmup": 0 if schedule == "plateau" else 1}
    try:
        tiny = replace(recipe, train=replace(recipe.train, **short | changes))
        train(tiny, tmp_path)
    except UserError as error:
        assert name in str(error) or "not finite" in str(error)
    else:
        assert [entry["update"] for entry in read_log(tmp_path)] == [1]


def test_a_loss_that_is_not_finite_is_reported(recipe, tmp_path):
    config = replace(recipe.train, lr=1e12, warmup=0)
    with pytest.raises(UserError, match="loss nan.* at update .*lower train.lr"):
        train(replace(recipe, train=config), tmp_path)


def test_a_small_model_learns_to_translate_numbers(recipe, tmp_path):
    config = replace(
        recipe.train, updates=400, lr=5e-3, warmup=40, schedule="cosine", checkpoint_every=400
    )
    model = replace(recipe.model, channels=64, ffn=64, dropout=0.0)
    train(replace(recipe, model=model, train=config), tmp_path)
    (valid,) = (e for e in read_log(tmp_path) if e["event"] == "valid")
    assert valid["score"] > 60  # 87 where it was written; an untrained model has 0


def test_pairs_that_cannot_be_used_are_reported(pairs, recipe):
    with pytest.raises(UserError, match="no usable example in split train: all have more than 2"):
        next(iter_updates(pairs, 2, recipe.train, DataPosition(), World()))


def test_all_of_a_checkpoint_is_booked_as_saving(recipe, tmp_path, monkeypatch):
    """A second for each of two checkpoints, the waits before them, and the wait at the end."""
    now = [0.0]

    def slowed(step):
        def slow(*arguments):
            now[0] += 1
            step(*arguments)

        return slow

    for name in ("save", "wait"):
        monkeypatch.setattr(CheckpointSaver, name, slowed(getattr(CheckpointSaver, name)))
    watch = Stopwatch(clock=lambda: now[0])
    train(recipe, tmp_path, watch)
    assert {name: seconds for name, seconds in watch.seconds.items() if seconds} == {"save": 5}


@pytest.mark.parametrize(
    ("name", "method", "use"),
    [
        ("austen-dynamic", TrainedModel.translate, "dynconv generate"),
        ("help-de-en-dynamic", TrainedModel.continue_text, "dynconv translate"),
    ],
)
def test_the_method_of_another_task_is_refused(tmp_path, name, method, use):
    checkpoint = Checkpoint(tmp_path / "checkpoints" / "000001", {})
    trained = TrainedModel(load_recipe(name), None, None, checkpoint)
    with pytest.raises(UserError, match=f"^{tmp_path}: .*{use}"):
        method(trained, "text")
