"""Training: loss and schedule against known answers, updates, resuming, stopping."""

import json
import math
import re
import signal
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace

import numpy as np
import pytest
import torch
from conftest import sized_stack
from helpers.schema import bounds
from helpers.training import stop_after, weights

from dynconv.config import Recipe, TrainConfig
from dynconv.config.recipe import SCHEDULES
from dynconv.errors import UserError
from dynconv.models import build
from dynconv.models.mixers import MIXERS
from dynconv.tasks import Translation, Validation
from dynconv.text import Pairs, collate, open_prepared
from dynconv.train import learning_rate, load_model, train
from dynconv.train.checkpoint import Checkpoints
from dynconv.train.data import DataPosition, UpdateBatches, iter_updates
from dynconv.train.distributed import Ranks
from dynconv.train.log import read_log
from dynconv.train.precision import choose_precision
from dynconv.train.schedule import RATES, ends_early
from dynconv.train.stopwatch import Stopwatch
from dynconv.train.update import TokenLoss, backward, make_optimizer


@pytest.mark.parametrize("name", ["inverse_sqrt_iwslt", "cosine_wmt16ende", "cosine_wmt14enfr"])
def test_schedule_golden(golden, name):
    _, meta, case = golden.case(f"lr_{name}")
    config = TrainConfig(
        updates=meta["warmup"] + meta.get("period", 10**6),
        lr=meta["lr"],
        warmup=meta["warmup"],
        schedule=meta["kind"],
        lr_end=meta.get("min_lr", 0.0),
    )
    steps = [s for s in case["steps"] if s < config.updates]  # there it begins again
    assert len(steps) >= 10
    rates = [learning_rate(config, int(s)) for s in steps]
    np.testing.assert_allclose(rates, case["lr"][: len(steps)], rtol=1e-9)


@pytest.mark.parametrize("schedule", ["inverse_sqrt", "cosine"])
def test_schedule_without_warm_up_starts_at_the_peak(schedule):
    config = TrainConfig(warmup=0, schedule=schedule)
    assert learning_rate(config, 0) == config.lr


def test_every_schedule_of_a_recipe_has_its_function():
    assert RATES.keys() == SCHEDULES.keys()


def test_an_inverse_square_root_without_warm_up_begins_at_once():
    config = TrainConfig(warmup=0, lr=0.5)
    rates = [learning_rate(config, done) for done in (0, 1, 4, 100)]
    assert rates == pytest.approx([0.5, 0.5, 0.25, 0.05])


def one_update(pairs: list, sizes: list[int]) -> UpdateBatches:
    """An update of these pairs, in batches of these sizes."""
    ends = np.cumsum(sizes)
    batches = [collate(pairs[end - size : end]) for size, end in zip(sizes, ends, strict=True)]
    tokens = sum(len(batch.target) for batch in batches)
    return UpdateBatches(batches, [], [0] * len(batches), tokens, DataPosition())


def mean_loss(model, work: UpdateBatches, precision: str = "float32") -> float:
    """Put the gradients into the model; the mean loss per token."""
    model.zero_grad()
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    loss_module = TokenLoss(model, Translation(Recipe()), precision)
    losses = backward(loss_module, work, scaler, Ranks(), Stopwatch())
    return sum(losses).item() / work.tokens


def gradients(model, work: UpdateBatches, precision: str = "float32") -> list[torch.Tensor]:
    mean_loss(model, work, precision)
    return [p.grad for p in model.parameters()]


def test_accumulated_batches_give_the_gradient_of_the_joined_one(recipe):
    model = build(replace(recipe.model, dropout=0.0)).double()
    pairs = [([5, 6, 7], [8]), ([5, 9], [7, 6, 5, 8]), ([11], [12, 13])]
    joined = gradients(model, one_update(pairs, [3]))
    parts = gradients(model, one_update(pairs, [1, 2]))
    for a, b in zip(joined, parts, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-9)  # the loss is float32


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
@pytest.mark.parametrize("mixer", MIXERS)
def test_16_bits_give_nearly_the_same_gradient(recipe, pairs, mixer, precision):
    stack = sized_stack(2, mixer, None if mixer == "attention" else (3, 7))
    torch.manual_seed(0)
    model = build(replace(recipe.model, encoder=stack, decoder=stack, dropout=0.0))
    work = next(iter_updates(pairs, 256, recipe.train, DataPosition(), Ranks()))
    exact = torch.cat([g.flatten() for g in gradients(model, work)])
    rough = torch.cat([g.flatten() for g in gradients(model, work, precision)])
    assert not torch.equal(exact, rough)
    assert torch.cosine_similarity(exact, rough, dim=0) > 0.99  # bfloat16 keeps 8 bits


def test_five_updates_and_five_more_are_ten(recipe, tmp_path, monkeypatch):
    """Bit for bit, with dropout: weights, moments, random numbers and place are all restored."""
    train(recipe, tmp_path / "whole")
    stop_after(5, monkeypatch)
    assert train(recipe, tmp_path / "parts") == signal.SIGINT
    monkeypatch.undo()
    torch.rand(7)  # the generator has moved on, as in a new process
    assert train(recipe, tmp_path / "parts") is None
    a, b = (weights(tmp_path / name, "000010") for name in ("whole", "parts"))
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert [e["update"] for e in read_log(tmp_path / "parts")] == [5, 10]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_between_validations_saves(recipe, tmp_path, monkeypatch, number):
    stop_after(3, monkeypatch, number)
    assert train(recipe, tmp_path) == number
    (saved,) = Checkpoints(tmp_path).list_readable()
    assert saved.meta["update"] == 3 and saved.meta["score"] is None
    monkeypatch.undo()
    assert train(recipe, tmp_path) is None
    assert Checkpoints(tmp_path).choose("last").meta["update"] == 10


def test_a_program_can_train_in_a_thread(recipe, tmp_path):
    """Only the main thread can catch signals."""
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(train, recipe, tmp_path).result() is None
    assert Checkpoints(tmp_path).choose("last").meta["update"] == 10


@pytest.mark.parametrize(("max_length", "batch_tokens"), [(20, 400), (256, 20), (256, 400)])
def test_pairs_that_are_too_long_are_reported(recipe, tmp_path, capsys, max_length, batch_tokens):
    recipe = replace(
        recipe,
        data=replace(recipe.data, max_length=max_length),
        train=replace(recipe.train, batch_tokens=batch_tokens, updates=2),
    )
    train(recipe, tmp_path)
    pairs = Pairs.of(open_prepared(tmp_path / "data", verify=False))
    long = int((pairs.lengths(range(400)).max(1) > min(max_length, batch_tokens)).sum())
    assert (long > 0) == (min(max_length, batch_tokens) == 20)
    said = f"{long} of 400 pairs are left out: a side has more than 20 tokens (data.max_length, "
    assert (said in capsys.readouterr().err) == (long > 0)
    (start,) = json.loads((tmp_path / "environment.json").read_text())
    assert (start["examples"], start["too_long"]) == (400, long)


def test_a_finished_run_has_no_time_left(recipe, tmp_path, capsys):
    """Also if its last validation is not a multiple of train.validate_every."""
    train(replace(recipe, train=replace(recipe.train, updates=13, validate_every=11)), tmp_path)
    early, last = re.findall("^update 1[13]: .*", capsys.readouterr().err, re.MULTILINE)
    assert early.endswith(" left") and not last.endswith(" left")


def test_events_of_lost_updates_are_dropped(recipe, tmp_path, monkeypatch):
    """A killed run has logged more than it saved, and half a line."""
    stop_after(5, monkeypatch)
    train(recipe, tmp_path)
    monkeypatch.undo()
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


def test_a_run_directory_holds_what_reproduces_it(recipe, tmp_path):
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


def test_the_average_is_the_mean_and_is_scored(recipe, tmp_path):
    config = replace(recipe.train, average_checkpoints=2)
    train(replace(recipe, train=config), tmp_path)
    a, b, mean = (weights(tmp_path, name) for name in ("000005", "000010", "average"))
    for name in mean:
        torch.testing.assert_close(mean[name], (a[name] + b[name]) / 2)
    assert Checkpoints(tmp_path).choose("average").meta["score"] is not None
    assert Checkpoints(tmp_path).choose("last").path.name == "average"


def test_a_run_that_is_extended_has_a_new_average(recipe, tmp_path):
    for updates in (10, 15):
        config = replace(recipe.train, average_checkpoints=2, updates=updates)
        train(replace(recipe, train=config), tmp_path)
        (tmp_path / "recipe.yaml").write_text(
            (tmp_path / "recipe.yaml").read_text().replace("updates: 10", "updates: 15")
        )
    a, b, mean = (weights(tmp_path, name) for name in ("000010", "000015", "average"))
    assert all(torch.allclose(mean[name], (a[name] + b[name]) / 2, atol=1e-7) for name in a)
    assert Checkpoints(tmp_path).choose("last").path.name == "average"
    assert not list(tmp_path.glob("checkpoints/*.damaged*"))


@pytest.mark.parametrize(
    ("scores", "patience", "expected"),
    [
        ([1, 2, 3], None, False),
        ([1, 2], 2, False),
        ([1, 3, 2], 2, False),
        ([3, 1, 2], 2, True),
        ([3, 3, 3], 2, True),
        ([math.nan, 1, 2], 2, False),
        ([1, math.nan, math.nan], 2, True),
        ([math.nan, math.nan], 1, True),
    ],
)
def test_early_stopping(scores, patience, expected):
    found = [Validation(1.0, score, "BLEU") for score in scores]
    assert ends_early(TrainConfig(patience=patience), found) is expected


def test_a_plateau_lowers_the_rate_after_each_validation_until_it_is_spent():
    config = TrainConfig(schedule="plateau", lr=0.25, lr_end=1e-4, warmup=0)
    losses = [3.0, 2.0, 2.5, 1.0, 0.9]  # what comes after the first worse one does not matter
    rates = [learning_rate(config, 100, losses[:n]) for n in range(6)]
    assert rates == pytest.approx([0.25, 0.25, 0.25, 0.025, 0.0025, 0.00025])
    found = [Validation(loss, 0.0, "BLEU") for loss in [*losses, 0.8]]
    assert not ends_early(config, found[:-1])
    assert ends_early(config, found)
    assert not ends_early(replace(config, schedule="inverse_sqrt"), found)


def test_a_plateau_treats_nan_as_the_worst_loss():
    config = TrainConfig(schedule="plateau", lr=0.25, lr_end=1e-3, warmup=0)
    losses = [3.0, 2.0, math.nan, math.nan, math.nan]
    rates = [learning_rate(config, 100, losses[:n]) for n in range(6)]
    assert rates == pytest.approx([0.25, 0.25, 0.25, 0.025, 0.0025, 0.00025])
    found = [Validation(loss, 0.0, "BLEU") for loss in losses]
    assert ends_early(config, found) and not ends_early(config, found[:-1])


def test_nesterov_gradient_by_hand():
    model = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.ones_(model.weight)
    config = TrainConfig(optimizer="nag", momentum=0.9, lr=0.1, warmup=0)
    optimizer, _ = make_optimizer(model, config, torch.device("cpu"))
    weight, velocity = 1.0, 0.0
    for _ in range(3):
        model.weight.grad = 2 * model.weight.detach()  # of w^2
        optimizer.step()
        velocity = 0.9 * velocity + 2 * weight
        weight -= 0.1 * (2 * weight + 0.9 * velocity)
        assert model.weight.item() == pytest.approx(weight)


def test_a_batch_has_no_more_sentences_than_asked(pairs, recipe):
    config = replace(recipe.train, batch_sentences=3)
    update = next(
        iter_updates(pairs, 256, config, DataPosition(), Ranks(device=torch.device("cpu")))
    )
    assert len(update.batches[0].source) == 3


def test_patience_ends_training(recipe, tmp_path):
    config = replace(recipe.train, updates=50, validate_every=1, patience=2, lr=0.0, lr_start=0.0)
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
    adam = name != "momentum"
    changes = {name: value, "schedule": schedule, "optimizer": "adam" if adam else "nag"}
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
        recipe.train, updates=400, lr=5e-3, warmup=40, schedule="cosine", validate_every=400
    )
    model = replace(recipe.model, channels=64, ffn=64, dropout=0.0)
    train(replace(recipe, model=model, train=config), tmp_path)
    (valid,) = (e for e in read_log(tmp_path) if e["event"] == "valid")
    assert valid["score"] > 60  # 87 where it was written; an untrained model has 0


def test_auto_precision_is_decided_and_recorded(recipe, tmp_path):
    recipe = replace(recipe, train=replace(recipe.train, precision="auto"))
    train(recipe, tmp_path)
    assert load_model(tmp_path).recipe.train.precision in ("float32", "bfloat16")
    assert train(recipe, tmp_path) is None  # auto again is no difference


@pytest.mark.parametrize(("slow", "chosen"), [("float32", "bfloat16"), ("bfloat16", "float32")])
def test_the_faster_precision_is_chosen(recipe, pairs, monkeypatch, slow, chosen):
    from time import sleep

    from dynconv.train import precision as module

    def backward(loss_module, *_):
        sleep(0.05 if loss_module.precision == slow else 0.001)
        return [torch.zeros(())]

    monkeypatch.setattr(module, "backward", backward)
    model, cpu = build(recipe.model), torch.device("cpu")
    assert choose_precision(model, Translation(recipe), pairs, cpu) == chosen


def test_pairs_that_cannot_be_used_are_reported(pairs, recipe):
    with pytest.raises(UserError, match="no usable example in split train: all have more than 2"):
        next(iter_updates(pairs, 2, recipe.train, DataPosition(), Ranks()))
