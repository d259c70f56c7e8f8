"""What the training loop does beside training: precision, bad numbers, locks, traces, clocks."""

import json
import math
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import pytest
import torch

from dynconv.errors import UserError
from dynconv.models import build
from dynconv.tasks import Translation
from dynconv.train import distributed, loop, tracing, train, update
from dynconv.train.checkpoint_store import CheckpointStore
from dynconv.train.data import DataPosition, iter_updates
from dynconv.train.distributed import World
from dynconv.train.events import read_log
from dynconv.train.precision import AUTOCAST_DTYPES
from dynconv.train.run_directory import folder_lock
from dynconv.train.signals import catch_signals
from dynconv.train.stopwatch import WARMUP_UPDATES, Stopwatch, format_seconds
from dynconv.train.update import BatchLoss, accumulate_gradients


def with_train(recipe, **values):
    return replace(recipe, train=replace(recipe.train, **values))


def spoil(monkeypatch, updates: set[int]) -> None:
    """Make the loss of these updates, counted from 1, not a number."""
    original, count = update.accumulate_gradients, 0

    def accumulate_gradients(loss_module, *more):
        nonlocal count
        count += 1
        losses = original(loss_module, *more)
        if count in updates:
            losses[0] = losses[0] * math.nan
            next(loss_module.parameters()).grad.fill_(math.nan)
        return losses

    monkeypatch.setattr(update, "accumulate_gradients", accumulate_gradients)


def test_a_bad_update_is_left_out_and_logged(prepared_recipe, tmp_path, monkeypatch):
    spoil(monkeypatch, {4, 5, 7, 8})  # train.max_skipped is 3 in a row
    assert train(prepared_recipe, tmp_path) is None
    events = read_log(tmp_path)
    assert [e["update"] for e in events if e["event"] == "skip"] == [4, 4, 5, 5]
    assert [e["update"] for e in events if e["event"] == "valid"] == [5, 10]
    weights = CheckpointStore(tmp_path).choose("last").read_weights()
    assert all(tensor.isfinite().all() for tensor in weights.values())
    # 14 batches: 10 updates, and the 4 that were left out.
    assert CheckpointStore(tmp_path).choose("last").meta["position"][2] == 14


def test_too_many_bad_updates_stop_and_show_their_text(
    prepared_recipe, corpus, tmp_path, monkeypatch
):
    spoil(monkeypatch, set(range(7, 20)))
    with pytest.raises(UserError, match="loss nan, gradient norm nan at update 7.*not-finite") as e:
        train(with_train(prepared_recipe, max_skipped=2), tmp_path)
    assert "\n" not in str(e.value) and "update 7, after others that were skipped:" in str(e.value)
    assert [e["event"] for e in read_log(tmp_path)].count("skip") == 3
    (batch,) = json.loads((tmp_path / "not-finite-000007-0.json").read_text(encoding="utf-8"))
    assert batch["loss"] == "nan"
    text = [(corpus / f"train.{side}").read_text().splitlines() for side in ("de", "en")]
    for shown in batch["examples"]:
        assert [shown["source"], shown["target"]] == [side[shown["example"]] for side in text]
    assert CheckpointStore(tmp_path).choose("last").meta["update"] == 5


@pytest.mark.parametrize(("allowed", "words"), [(0, ":"), (1, ", after others that were skipped:")])
def test_only_updates_that_were_skipped_are_counted(
    prepared_recipe, tmp_path, monkeypatch, allowed, words
):
    spoil(monkeypatch, set(range(2, 20)))
    with pytest.raises(UserError, match=f"gradient norm nan at update 2{words} continue"):
        train(with_train(prepared_recipe, max_skipped=allowed), tmp_path)


def begin_with_scale(monkeypatch, scale: float) -> None:
    scaler = partial(torch.amp.GradScaler, init_scale=scale)
    monkeypatch.setattr(torch.amp, "GradScaler", scaler)


def test_float16_halves_its_scale_until_nothing_overflows(prepared_recipe, tmp_path, monkeypatch):
    begin_with_scale(monkeypatch, 2.0**24)
    prepared_recipe = with_train(prepared_recipe, precision="float16", max_skipped=0)
    assert train(prepared_recipe, tmp_path) is None
    skips = [event["scale"] for event in read_log(tmp_path) if event["event"] == "skip"]
    last = CheckpointStore(tmp_path).choose("last")
    scale = last.read_state()["scaler"]["scale"]
    assert len(skips) >= 2  # an overflow is no bad update
    assert skips == [2.0**24 / 2**n for n in range(len(skips))]
    assert scale == 2.0**24 / 2 ** len(skips)
    weights = last.read_weights()
    assert all(tensor.isfinite().all() for tensor in weights.values())


def test_float16_goes_on_with_its_scale(prepared_recipe, tmp_path, monkeypatch):
    begin_with_scale(monkeypatch, 2.0**24)
    prepared_recipe = with_train(prepared_recipe, precision="float16", updates=20)
    train(prepared_recipe, tmp_path / "whole")
    train(with_train(prepared_recipe, updates=10), tmp_path / "parts")
    path = tmp_path / "parts" / "recipe.yaml"
    path.write_text(path.read_text().replace("updates: 10", "updates: 20"))
    train(prepared_recipe, tmp_path / "parts")
    skips = [e["update"] for e in read_log(tmp_path / "parts") if e["event"] == "skip"]
    assert skips and max(skips) <= 10  # the second part need not look for the scale again
    a, b = (CheckpointStore(tmp_path / name).choose("last") for name in ("whole", "parts"))
    a, b = a.read_weights(), b.read_weights()
    assert all(torch.equal(a[name], b[name]) for name in a)


def test_two_trainings_in_one_directory(tmp_path):
    with folder_lock(tmp_path):
        with pytest.raises(UserError, match=r"another process is training in it \(process \d+ on "):
            with folder_lock(tmp_path):
                pass
    with folder_lock(tmp_path):
        pass


def test_a_training_that_fails_at_once_leaves_no_folder(tmp_path):
    (tmp_path / "mine").mkdir()
    for run in ("runs/first", "mine/first"):
        with pytest.raises(UserError), folder_lock(tmp_path / run):
            raise UserError("no corpus")
    assert [path.name for path in tmp_path.rglob("*")] == ["mine"]


def test_a_killed_process_leaves_no_lock(tmp_path):
    code = f"""
import os, signal
from pathlib import Path
from dynconv.train.run_directory import folder_lock
from dynconv.train.signals import catch_signals
with folder_lock(Path({str(tmp_path)!r})):
    os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", code]).returncode == -signal.SIGKILL
    with folder_lock(tmp_path):
        pass


def test_the_trace_of_one_update(prepared_recipe, tmp_path):
    prepared_recipe = with_train(prepared_recipe, updates=12)
    assert train(replace(prepared_recipe, profile=True), tmp_path) is None
    events = json.loads((tmp_path / "trace.json").read_text(encoding="utf-8"))["traceEvents"]
    names = [event.get("name") for event in events]
    assert "aten::linear" in names
    assert names.count("Optimizer.step#AdamW.step") == 1  # one update, not all
    assert train(prepared_recipe, tmp_path) is None  # to have traced is no other recipe


def test_what_a_line_of_the_log_tells(prepared_recipe, tmp_path):
    train(with_train(prepared_recipe, updates=40, checkpoint_every=20), tmp_path)
    first, second = (event for event in read_log(tmp_path) if event["event"] == "train")
    assert first["update"] == 20 and second["update"] == 40
    assert first.keys() >= {"loss", "lr", "norm", "scale", "tokens_per_s", "memory_gb", "left_s"}
    assert first["left_s"] > 0 and second["left_s"] == pytest.approx(0, abs=5)
    assert 0.05 < first["memory_gb"] < 20
    assert first["tokens_per_s"] > 100
    assert 0 < first["overhead"] < 10


def test_the_time_left_is_estimated():
    """0.1 s for data and 0.9 s for an update, ten slow ones first; 8 s a validation, 2 s a save."""
    now = 0.0
    watch = Stopwatch(clock=lambda: now)

    def lap(name: str, seconds: float) -> None:
        nonlocal now
        now += seconds
        watch.lap(name)

    lap("start", 100)
    for number in range(1, 31):
        lap("data", 0.1)
        lap("forward", 0.9 if number > WARMUP_UPDATES else 5)
        watch.count_update()
        if number == WARMUP_UPDATES:
            assert watch.seconds_left(100, 0) is None
        if number == 20:
            assert watch.seconds_left(100, 3) == pytest.approx(100)  # no validation was seen
            lap("validate", 8)
            lap("save", 2)
            watch.count_validation()
    assert watch.seconds_left(100, 3) == pytest.approx(130)
    assert format_seconds(3723) == "1:02:03"


@pytest.fixture
def heard():
    """ctrl-C raises KeyboardInterrupt, also in a job in the background, which begins without."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heard")
def test_a_second_signal_has_its_ordinary_effect():
    with catch_signals() as received:
        assert received() == 0
        signal.raise_signal(signal.SIGINT)
        assert received() == signal.SIGINT
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("before", [signal.SIG_IGN, signal.SIG_DFL])
def test_nohup_keeps_a_hangup_from_ending_training(before):
    kept = signal.signal(signal.SIGHUP, before)
    try:
        with catch_signals():
            assert (signal.getsignal(signal.SIGHUP) is before) == (before is signal.SIG_IGN)
    finally:
        signal.signal(signal.SIGHUP, kept)


def test_under_torchrun_a_second_signal_changes_nothing(monkeypatch):
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "1")
    before = signal.getsignal(signal.SIGINT)
    with catch_signals() as received:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        assert received() == signal.SIGINT
    assert signal.getsignal(signal.SIGINT) is before


def test_more_processes_than_gpus(monkeypatch):
    monkeypatch.setattr(distributed.torch.cuda, "device_count", lambda: 2)
    with pytest.raises(UserError, match="4 processes on .*, which has 2 GPUs: .*nproc-per-node 2"):
        distributed.local_device(1, 4)
    monkeypatch.setattr(distributed.torch.cuda, "device_count", lambda: 0)
    assert distributed.local_device(1, 4) == torch.device("cpu")


def test_a_full_gpu_is_reported(prepared_recipe, tmp_path, monkeypatch):
    def accumulate_gradients(*_):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB. GPU 0 has ...")

    monkeypatch.setattr(update, "accumulate_gradients", accumulate_gradients)
    with pytest.raises(
        UserError,
        match=r"^not enough memory \(CUDA out of memory\): lower train.batch_tokens \(now 400",
    ):
        train(prepared_recipe, tmp_path)


def test_gradients_are_exchanged_only_with_the_last_batch(prepared_recipe, pairs):
    """no_sync encloses forward and backward of all others."""

    class Wrapped(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(()))
            self.alone, self.calls = False, []
            self.weight.register_hook(lambda _: self.calls.append(("backward", self.alone)))

        @contextmanager
        def no_sync(self):
            self.alone = True
            yield
            self.alone = False

        def forward(self, batch):
            self.calls.append(("forward", self.alone))
            return self.weight * len(batch.target)

    model, two = Wrapped(), World(0, 2, device=torch.device("cpu"))
    work = next(
        iter_updates(pairs, 256, replace(prepared_recipe.train, accumulate=3), DataPosition(), two)
    )
    losses = accumulate_gradients(
        model, work, torch.amp.GradScaler("cpu", enabled=False), two, Stopwatch()
    )
    others = [("forward", True), ("backward", True)] * 2
    assert model.calls == [*others, ("forward", False), ("backward", False)]
    # The mean over 2 ranks is taken by DistributedDataParallel.
    assert model.weight.grad == pytest.approx(2 * sum(losses).item() / work.tokens)


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
@pytest.mark.parametrize("mixer", ["dynamic", "attention"])
def test_norm_and_loss_are_float32_and_softmax_is_rounded_once(
    prepared_recipe, pairs, mixer, precision
):
    stack = replace(
        prepared_recipe.model.encoder, mixer=mixer, kernel_size=3 if mixer == "dynamic" else None
    )
    model = build(replace(prepared_recipe.model, encoder=stack))
    loss_module = BatchLoss(model, Translation(prepared_recipe), precision)
    norms = [part for part in loss_module.modules() if isinstance(part, torch.nn.LayerNorm)]
    seen = []
    for norm in norms:
        norm.register_forward_hook(lambda _, given, out: seen.append((given[0].dtype, out.dtype)))
    work = next(iter_updates(pairs, 256, prepared_recipe.train, DataPosition(), World()))
    assert loss_module(work.batches[0]).dtype == torch.float32
    assert len(seen) == len(norms) == 7
    assert set(seen) == {(torch.float32, torch.float32)}
    scores = torch.randn(50, 31, generator=torch.Generator().manual_seed(0)).to(
        AUTOCAST_DTYPES[precision]
    )
    exact = scores.float().softmax(-1)
    half_a_step = torch.finfo(scores.dtype).eps / 2
    assert ((scores.softmax(-1) - exact).abs() <= exact * half_a_step).all()


def test_a_kill_in_a_validation_loses_nothing(prepared_recipe, tmp_path, monkeypatch):
    """The checkpoint comes first; the validation is made up for."""
    whole = tmp_path / "whole"
    train(prepared_recipe, whole)

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(loop, "validate", killed)
        train(prepared_recipe, tmp_path / "run")
    saved = CheckpointStore(tmp_path / "run").choose("last")
    assert saved.meta["update"] == 5 and saved.meta["score"] is None
    assert train(prepared_recipe, tmp_path / "run") is None
    assert read_log(tmp_path / "run") == read_log(whole)
    assert CheckpointStore(tmp_path / "run").choose("000005").meta["score"] is not None


def test_another_text_under_a_checkpoint_is_refused(prepared_recipe, prepared, corpus, tmp_path):
    from dynconv.text import encode_corpus

    text = tmp_path / "text"
    shutil.copytree(prepared.directory, text)
    prepared_recipe = replace(prepared_recipe, data=replace(prepared_recipe.data, corpus=str(text)))
    train(prepared_recipe, tmp_path / "run")
    shutil.rmtree(text)
    fewer = tmp_path / "fewer"
    shutil.copytree(corpus, fewer)
    for side in ("de", "en"):
        lines = (corpus / f"train.{side}").read_text(encoding="utf-8").splitlines(keepends=True)
        (fewer / f"train.{side}").write_text("".join(lines[:300]), encoding="utf-8")
    encode_corpus(str(fewer), "de", "en", 300, text, reuse=prepared.directory / "vocabulary.json")
    record = tmp_path / "run" / "environment.json"
    before = record.read_bytes()
    with pytest.raises(UserError, match="text: not the text with which .*000010 was trained"):
        train(prepared_recipe, tmp_path / "run")
    assert record.read_bytes() == before


def test_a_users_own_data_stays(prepared_recipe, corpus, tmp_path):
    prepared_recipe = replace(
        prepared_recipe, data=replace(prepared_recipe.data, corpus=str(corpus))
    )
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "precious").write_text("mine")
    with pytest.raises(
        UserError, match="has data, and dynconv did not make it: name another run directory"
    ):
        train(prepared_recipe, tmp_path)
    assert (tmp_path / "data" / "precious").read_text() == "mine"


def test_interruptions_do_not_change_the_average(prepared_recipe, tmp_path, monkeypatch):
    prepared_recipe = with_train(prepared_recipe, average_checkpoints=2, updates=15)
    train(prepared_recipe, tmp_path / "whole")
    count, original = 0, update.accumulate_gradients

    def accumulate_gradients(*arguments):
        nonlocal count
        count += 1
        if count == 12:
            signal.raise_signal(signal.SIGTERM)
        return original(*arguments)

    monkeypatch.setattr(update, "accumulate_gradients", accumulate_gradients)
    assert train(prepared_recipe, tmp_path / "parts") == signal.SIGTERM
    assert train(prepared_recipe, tmp_path / "parts") is None
    a, b = (CheckpointStore(tmp_path / name).choose("average") for name in ("whole", "parts"))
    a, b = a.read_weights(), b.read_weights()
    assert all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize(
    "values",
    [
        {"patience": 0},
        {"seed": -1},
        {"clip_norm": 0.0},
        {"average_checkpoints": -1},
        {"lr": math.nan},
    ],
)
def test_values_that_would_spoil_a_run_later(prepared_recipe, values):
    with pytest.raises(ValueError, match=rf"^{next(iter(values))} .*(must be|should be)"):
        with_train(prepared_recipe, **values)


def test_after_a_loss_of_power(prepared_recipe, tmp_path):
    """Small files may be empty or hold zeros then; the checkpoints are what counts."""
    train(with_train(prepared_recipe, updates=5), tmp_path)
    path = tmp_path / "recipe.yaml"
    path.write_text(path.read_text().replace("updates: 5", "updates: 10"))
    (tmp_path / "environment.json").write_text("")
    with (tmp_path / "log.jsonl").open("ab") as log:
        log.write(b"\0" * 40 + b"\n")
    assert train(prepared_recipe, tmp_path) is None
    assert [event["update"] for event in read_log(tmp_path)] == [5, 10]


def test_a_run_goes_on_without_its_log(prepared_recipe, tmp_path):
    """The history of validations is in the checkpoint: a plateau keeps its rate, bit for bit."""
    prepared_recipe = with_train(
        prepared_recipe,
        updates=40,
        checkpoint_every=5,
        schedule="plateau",
        lr=1e-3,
        lr_end=1e-12,
        warmup=0,
    )
    prepared_recipe = with_train(
        prepared_recipe, label_smoothing=0.9
    )  # so that the loss does not improve for ever
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    train(prepared_recipe, whole)
    train(with_train(prepared_recipe, updates=30), parts)
    path = parts / "recipe.yaml"
    path.write_text(path.read_text().replace("updates: 30", "updates: 40"))
    (parts / "log.jsonl").unlink()
    train(prepared_recipe, parts)
    a, b = (CheckpointStore(run).choose("last") for run in (whole, parts))
    assert len({found["loss"] for found in a.meta["history"]}) == 7
    assert a.meta["history"] == b.meta["history"]
    a, b = a.read_weights(), b.read_weights()
    assert all(torch.equal(a[name], b[name]) for name in a)


def test_an_old_checkpoint_needs_the_log_that_its_history_is_in(prepared_recipe, tmp_path):
    """Those of dynconv 0.1 have no history; log.jsonl has, and without it nothing is guessed."""
    prepared_recipe = with_train(prepared_recipe, schedule="plateau", warmup=0)
    train(with_train(prepared_recipe, updates=5), tmp_path)
    path = tmp_path / "checkpoints" / "000005" / "meta.json"
    meta = json.loads(path.read_text())
    assert meta.pop("history") == []
    path.write_text(json.dumps(meta))
    recipe_path = tmp_path / "recipe.yaml"
    recipe_path.write_text(recipe_path.read_text().replace("updates: 5\n", "updates: 10\n"))
    log_text = (tmp_path / "log.jsonl").read_text()
    (tmp_path / "log.jsonl").unlink()
    with pytest.raises(UserError, match=r"log.jsonl: missing, and .*plateau and train.patience"):
        train(prepared_recipe, tmp_path)
    (tmp_path / "log.jsonl").write_text(log_text)
    assert train(prepared_recipe, tmp_path) is None
    (first,) = CheckpointStore(tmp_path).choose("last").meta["history"]
    assert first["loss"] == json.loads(log_text.splitlines()[0])["loss"]


def test_other_processes_wait_while_rank_0_writes_a_trace(tmp_path, monkeypatch):
    """They meet it with LONG_TIMEOUT after each traced update, not with train.timeout."""
    met = []

    class Waiting(World):
        def on_rank_zero(self, function):
            met.append(self.rank)
            return function() if self.is_rank_zero else None

    for rank in range(2):
        with tracing.tracing(tmp_path, True, Waiting(rank, 2, device=torch.device("cpu"))) as step:
            for _ in range(tracing.TRACED_UPDATE + 5):
                step()
    assert met == [0] * tracing.TRACED_UPDATE + [1] * tracing.TRACED_UPDATE
    assert (tmp_path / "trace.json").exists()


def test_a_timeout_is_free_to_change(prepared_recipe, tmp_path):
    train(prepared_recipe, tmp_path)
    assert train(with_train(prepared_recipe, timeout=5.0), tmp_path) is None
    with pytest.raises(ValueError, match="timeout 0 must be a number above 0"):
        with_train(prepared_recipe, timeout=0)
