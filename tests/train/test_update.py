"""One update: its gradient, by hand and in batches, and the optimizer's step."""

import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from conftest import sized_stack
from helpers.training import StoppingWatch

from dynconv.config import Recipe, TrainConfig
from dynconv.config.optimizers import OPTIMIZERS, Optimizer
from dynconv.models import build
from dynconv.models.mixers import MIXERS
from dynconv.tasks import Translation
from dynconv.text import collate_pairs
from dynconv.train import loop, train
from dynconv.train.checkpoint_store import CheckpointStore
from dynconv.train.data import DataPosition, UpdateBatches, iter_updates
from dynconv.train.distributed import World
from dynconv.train.setup import make_optimizer
from dynconv.train.stopwatch import Stopwatch
from dynconv.train.update import BatchLoss, accumulate_gradients, make_update


def one_update(pairs: list, sizes: list[int]) -> UpdateBatches:
    """An update of these pairs, in batches of these sizes."""
    ends = np.cumsum(sizes)
    batches = [
        collate_pairs(pairs[end - size : end]) for size, end in zip(sizes, ends, strict=True)
    ]
    tokens = sum(len(batch.target) for batch in batches)
    return UpdateBatches(batches, [], [0] * len(batches), tokens, DataPosition())


def mean_loss(model, data: UpdateBatches, precision: str = "float32") -> float:
    """Put the gradients into the model; the mean loss per token."""
    model.zero_grad()
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    loss_module = BatchLoss(model, Translation(Recipe()), precision)
    losses = accumulate_gradients(loss_module, data, scaler, World(), Stopwatch())
    return sum(losses).item() / data.tokens


def gradients(model, data: UpdateBatches, precision: str = "float32") -> list[torch.Tensor]:
    mean_loss(model, data, precision)
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
    data = next(iter_updates(pairs, 256, recipe.train, DataPosition(), World()))
    exact = torch.cat([g.flatten() for g in gradients(model, data)])
    rough = torch.cat([g.flatten() for g in gradients(model, data, precision)])
    assert not torch.equal(exact, rough)
    assert torch.cosine_similarity(exact, rough, dim=0) > 0.99  # bfloat16 keeps 8 bits


def test_an_update_reads_its_results_once(recipe, tmp_path, monkeypatch):
    """Each time that Python reads a number, it waits for the GPU to compute it."""
    readers = []

    def counted(read):
        def call(tensor):
            readers.append(sys._getframe(1).f_globals["__name__"])
            return read(tensor)

        return call

    for name in ("item", "tolist", "__float__", "__bool__", "__int__"):
        monkeypatch.setattr(torch.Tensor, name, counted(getattr(torch.Tensor, name)))
    reads = []

    def update(*arguments):
        readers.clear()
        result = make_update(*arguments)
        reads.append([name for name in readers if name.startswith("dynconv.")])
        return result

    monkeypatch.setattr(loop, "make_update", update)
    train(replace(recipe, train=replace(recipe.train, clip_norm=0.1)), tmp_path)
    assert len(reads) == recipe.train.updates
    assert set(map(tuple, reads)) == {("dynconv.train.distributed",)}


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


@pytest.mark.parametrize(
    ("class_name", "options", "moments", "scalars"),
    [
        ("RAdam", ("betas", "eps"), ("exp_avg", "exp_avg_sq"), ("step",)),
        ("NAdam", ("betas", "eps"), ("exp_avg", "exp_avg_sq"), ("step", "mu_product")),
        ("Adamax", ("betas", "eps"), ("exp_avg", "exp_inf"), ("step",)),
        ("RMSprop", ("momentum", "eps"), ("square_avg", "momentum_buffer"), ("step",)),
        ("Adagrad", ("eps",), ("sum",), ("step",)),
    ],
)
def test_an_entry_adds_an_optimizer(
    recipe, tmp_path, monkeypatch, class_name, options, moments, scalars
):
    """It trains, and resumes from its state."""
    entry = Optimizer(class_name, {}, options, moments, scalars, moments_in_words="-")
    monkeypatch.setitem(OPTIMIZERS, "adamw", entry)
    train(recipe, tmp_path, StoppingWatch(5))
    assert train(recipe, tmp_path) is None
    assert CheckpointStore(tmp_path).choose("last").meta["update"] == 10
