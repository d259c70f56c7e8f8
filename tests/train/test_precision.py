"""The precision that `train.precision: auto` stands for."""

from dataclasses import replace
from shutil import rmtree
from time import sleep

import pytest
import torch

from dynconv.train import load_model, setup, train
from dynconv.train.precision import choose_precision
from dynconv.train.update import BatchLoss


def test_auto_precision_is_decided_and_recorded(recipe, tmp_path):
    recipe = replace(recipe, train=replace(recipe.train, precision="auto"))
    train(recipe, tmp_path)
    assert load_model(tmp_path).recipe.train.precision in ("float32", "bfloat16")
    assert train(recipe, tmp_path) is None  # auto again is no difference


@pytest.mark.parametrize("chosen", ["float32", "bfloat16"])
def test_a_resumed_run_keeps_the_precision_that_was_chosen(recipe, tmp_path, monkeypatch, chosen):
    recipe = replace(recipe, train=replace(recipe.train, precision="auto"))
    monkeypatch.setattr(setup, "choose_precision", lambda *_: chosen)
    train(recipe, tmp_path)
    newest = tmp_path / "checkpoints" / "000010"
    rmtree(newest)
    monkeypatch.setattr(setup, "choose_precision", lambda *_: pytest.fail("chosen again"))
    used = []

    def spy(model, task, precision):
        used.append(precision)
        return BatchLoss(model, task, precision)

    monkeypatch.setattr(setup, "BatchLoss", spy)
    train(recipe, tmp_path)
    assert newest.exists() and set(used) == {chosen}
    assert load_model(tmp_path).recipe.train.precision == chosen


@pytest.mark.parametrize(("slow", "chosen"), [("float32", "bfloat16"), ("bfloat16", "float32")])
def test_the_faster_precision_is_chosen(recipe, pairs, slow, chosen):
    weight, seen = torch.nn.Parameter(torch.ones(1)), []

    class Loss(torch.nn.Module):
        def __init__(self, precision):
            super().__init__()
            self.weight, self.precision = weight, precision

        def forward(self, batch):
            sleep(0.05 if self.precision == slow else 0.001)
            seen.append(self.precision)
            return self.weight.sum()

    assert choose_precision(recipe, pairs, Loss, torch.device("cpu")) == chosen
    assert seen == ["float32", "bfloat16"] * 6 and weight.grad is None
