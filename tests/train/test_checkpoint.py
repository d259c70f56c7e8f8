"""Checkpoints: whole or not there, and nothing of a bad one is executed or lost."""

import errno
import hashlib
import json
import math
import pickle
import shutil
import threading
from dataclasses import replace

import pytest
import torch

from dynconv.errors import UserError
from dynconv.files import claim
from dynconv.models import build
from dynconv.train import checkpoint_store, load_model, loop, train
from dynconv.train.checkpoint import FORMAT, Checkpoint
from dynconv.train.checkpoint_store import CheckpointStore
from dynconv.train.saving import copy_state
from dynconv.train.weights import named_weights


@pytest.fixture
def run(recipe, tmp_path):
    folder = tmp_path / "run"
    train(recipe, folder)
    return folder


def meta(update: int, bleu: float | None = None) -> dict:
    sums = {"vocabulary": "", "text": ""}
    scores = {"loss": None if bleu is None else 1.0, "score": bleu, "metric": "BLEU"}
    fixed = {"position": [0, 0, 0], "batches": 1, "device": "cpu"}
    return {"update": update, **fixed, **scores, **sums}


def test_the_empty_name_of_a_run_is_not_the_working_directory(run, monkeypatch):
    monkeypatch.chdir(run)
    load_model(".")
    with pytest.raises(UserError, match="'' names no run directory: give the path of one"):
        load_model("")


def longer(run, recipe):
    """The recipe with 20 updates, also as that of the run."""
    path = run / "recipe.yaml"
    path.write_text(path.read_text().replace("updates: 10", "updates: 20"))
    return replace(recipe, train=replace(recipe.train, updates=20))


def test_damaged_checkpoints_do_not_stand_in_the_way(run, recipe):
    """Those that training goes back beyond are the newest no more, whatever their number."""
    longest = longer(run, recipe)
    train(longest, run)
    for name in ("000015", "000020"):
        (run / "checkpoints" / name / "state.pt").write_bytes(b"")
    assert train(longest, run) is None
    assert [each.path.name for each in CheckpointStore(run).list_readable()][-1] == "000020"
    CheckpointStore(run).choose("last").read_state()


@pytest.mark.parametrize("damage", ["truncate", "flip", "foreign", "missing"])
@pytest.mark.parametrize("file", ["model.safetensors", "state.pt", "meta.json"])
def test_a_damaged_checkpoint_is_named_and_the_one_before_it_is_used(
    run, recipe, file, damage, capsys
):
    path = run / "checkpoints" / "000010" / file
    data = path.read_bytes()
    if damage == "missing":
        path.unlink()
    else:
        flipped = bytes([data[0] ^ 1]) + data[1:]
        new = {"truncate": data[: len(data) // 2], "flip": flipped, "foreign": b"{}" * 500}
        path.write_bytes(new[damage])
    if (file, damage) != ("state.pt", "missing"):  # the model alone needs no state
        with pytest.raises(UserError) as error:
            saved = Checkpoint.open(path.parent)
            saved.read_weights()
            saved.read_state()
        assert file in str(error.value) and "\n" not in str(error.value)
    capsys.readouterr()
    assert train(longer(run, recipe), run) is None
    words = capsys.readouterr().err.splitlines()
    assert any(line.startswith("update 10: ") for line in words)  # it began again from update 5
    if (file, damage) != ("meta.json", "missing"):  # without it, it is half deleted: no checkpoint
        assert words[0].startswith(f"dynconv: {path}: ")
        assert words[0].endswith("; going back to the checkpoint before it")


def test_a_run_without_an_intact_checkpoint_is_reported(run, recipe):
    for path in (run / "checkpoints").glob("*/state.pt"):
        path.write_bytes(b"")
    with pytest.raises(UserError, match="no intact checkpoint; name another run directory"):
        train(longer(run, recipe), run)


def test_opening_a_checkpoint_executes_nothing(run, tmp_path):
    class Attack:
        def __reduce__(self):
            return (open, (str(tmp_path / "attacked"), "w"))

    saved = Checkpoint.open(run / "checkpoints" / "000010")
    for attack in (pickle.dumps(Attack(), protocol=2), None):
        path = saved.path / "state.pt"
        path.write_bytes(attack) if attack else torch.save(Attack(), path)
        saved.meta["sha256"]["state.pt"] = hashlib.sha256(path.read_bytes()).hexdigest()
        with pytest.raises(UserError, match="nothing was executed"):
            saved.read_state()
    assert not (tmp_path / "attacked").exists()


def test_the_checkpoint_of_another_recipe_is_refused(run, recipe, tmp_path):
    other = tmp_path / "other"
    train(replace(recipe, model=replace(recipe.model, ffn=48)), other)
    shutil.copytree(other / "checkpoints/000010", run / "checkpoints/000010", dirs_exist_ok=True)
    with pytest.raises(UserError, match="another recipe.*48"):
        load_model(run, "last")


def test_the_checkpoint_of_another_vocabulary_is_refused(run):
    path = run / "vocabulary.json"
    path.write_text(path.read_text() + "\n")
    with pytest.raises(UserError, match="another vocabulary"):
        load_model(run)


def test_a_full_disk_loses_nothing(recipe, tmp_path, monkeypatch):
    model = build(recipe.model)
    first = CheckpointStore(tmp_path).write("000001", named_weights(model), {}, meta(1))

    def full(path, data):
        if path.name == "state.pt":
            raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint_store, "write_through", full)
        with pytest.raises(UserError, match="000002: cannot be written.*No space left.*untouched"):
            CheckpointStore(tmp_path).write("000002", named_weights(model), {}, meta(2))
    assert [c.path for c in CheckpointStore(tmp_path).list_readable()] == [first.path]
    assert [p.name for p in (tmp_path / "checkpoints").iterdir()] == ["000001"]
    CheckpointStore(tmp_path).write("000002", named_weights(model), {}, meta(2))  # there is room


def test_training_goes_on_while_a_checkpoint_is_written(recipe, tmp_path, monkeypatch):
    """The thread writes a copy: the same files as when training waits for it."""
    updated, write, update = threading.Event(), CheckpointStore.write, loop.make_update

    def update_and_tell(session, *args):
        result = update(session, *args)
        if session.progress.updates > 5:
            updated.set()
        return result

    def write_later(*args, **options):
        assert updated.wait(timeout=20), "the next update waits for the checkpoint"
        return write(*args, **options)

    train(recipe, tmp_path / "waiting")
    monkeypatch.setattr(loop, "make_update", update_and_tell)
    monkeypatch.setattr(CheckpointStore, "write", write_later)
    train(recipe, tmp_path / "run")
    for waiting, going in zip(
        CheckpointStore(tmp_path / "waiting").list_readable(),
        CheckpointStore(tmp_path / "run").list_readable(),
        strict=True,
    ):
        assert going.validation == waiting.validation
        assert going.meta["sha256"] == waiting.meta["sha256"]


@pytest.mark.parametrize("failing", [5, 10])
def test_a_failed_save_is_reported_at_the_next_one_or_the_end(
    recipe, tmp_path, monkeypatch, failing
):
    write, update, done = CheckpointStore.write, loop.make_update, []

    def fail(store, name, **options):
        if name == f"{failing:06d}":
            raise UserError("disk full")
        return write(store, name, **options)

    def count(*args):
        done.append(args)
        return update(*args)

    monkeypatch.setattr(loop, "make_update", count)
    monkeypatch.setattr(CheckpointStore, "write", fail)
    with pytest.raises(UserError, match="disk full"):
        train(recipe, tmp_path)
    assert len(done) == 10
    names = [path.name for path in (tmp_path / "checkpoints").glob("*")]
    assert names == ["000005"] * (failing == 10)


def test_the_copies_of_a_state_share_memory():
    state = {"weight": torch.ones(3), "moments": {0: {"step": torch.tensor(1.0)}}, "scale": 2.0}
    first = copy_state(state)
    state["weight"] += 1
    assert first["weight"].tolist() == [1, 1, 1]
    state["moments"][1] = {"step": torch.tensor(4.0)}  # a parameter that had no gradient before
    second = copy_state(state, first)
    assert second["weight"] is first["weight"] and second["weight"].tolist() == [2, 2, 2]
    assert second["moments"][1]["step"] == 4 and second["scale"] == 2


@pytest.mark.parametrize("written", [1.0, 0.5])
def test_a_killed_save_leaves_no_checkpoint(recipe, tmp_path, written):
    model = build(recipe.model)
    CheckpointStore(tmp_path).write("000001", named_weights(model), {}, meta(1))
    claim(tmp_path / "checkpoints" / ".part", "-")
    part = tmp_path / "checkpoints" / ".part" / "000002"
    part.mkdir()
    text = json.dumps({"format": FORMAT, **meta(2)})
    (part / "meta.json").write_text(text[: int(written * len(text))])
    assert CheckpointStore(tmp_path).choose("last").path.name == "000001"
    CheckpointStore(tmp_path).write("000002", named_weights(model), {}, meta(2))
    assert not part.exists()


def test_the_newest_and_the_best_stay(recipe, tmp_path):
    weights = named_weights(build(recipe.model))
    for update, bleu in enumerate([1.0, 9.0, None, 3.0, 2.0], 1):
        CheckpointStore(tmp_path).write(f"{update:06d}", weights, {}, meta(update, bleu))
        CheckpointStore(tmp_path).prune(2)
    names = [c.path.name for c in CheckpointStore(tmp_path).list_readable()]
    assert names == ["000002", "000004", "000005"]
    assert CheckpointStore(tmp_path).choose("best").path.name == "000002"
    assert CheckpointStore(tmp_path).choose("last").path.name == "000005"
    assert CheckpointStore(tmp_path).choose("000004").path.name == "000004"


@pytest.mark.parametrize("spoilt", ["loss", "score"])
def test_a_validation_of_nan_is_never_the_best(recipe, tmp_path, spoilt):
    model = build(recipe.model)
    for update in (1, 2, 3):
        scores = meta(update, 5.0 - update) | ({spoilt: math.nan} if update == 1 else {})
        CheckpointStore(tmp_path).write(f"{update:06d}", named_weights(model), {}, scores)
    assert CheckpointStore(tmp_path).choose("best").path.name == "000002"
    CheckpointStore(tmp_path).prune(1)
    assert [c.path.name for c in CheckpointStore(tmp_path).list_readable()] == ["000002", "000003"]


@pytest.mark.parametrize(
    ("which", "words"), [("best", "no checkpoint in it"), ("7", "no checkpoint here")]
)
def test_a_checkpoint_that_is_not_there(tmp_path, which, words):
    with pytest.raises(UserError, match=words):
        CheckpointStore(tmp_path).choose(which)


def files_of(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_another_number_of_batches_an_update_is_refused(run, recipe):
    more = replace(longer(run, recipe).train, accumulate=3)
    before = files_of(run)
    with pytest.raises(UserError, match="1 batches per update, now 3 .*give train.accumulate=1"):
        train(replace(recipe, train=more), run)
    assert files_of(run) == before


def test_a_missing_gpu_is_reported(run, recipe, monkeypatch):
    path = run / "checkpoints" / "000010" / "meta.json"
    path.write_text(path.read_text().replace('"cpu"', '"cuda"'))
    recipe = longer(run, recipe)
    before = files_of(run)
    with pytest.raises(UserError, match="trained on a GPU, but none is visible here"):
        train(recipe, run)
    assert files_of(run) == before
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert train(recipe, run) is None
