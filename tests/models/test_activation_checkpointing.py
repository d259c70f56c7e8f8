"""Activation checkpointing: the same gradients bit for bit, with less memory."""

from dataclasses import replace

import pytest
import torch
from conftest import sized_stack

from dynconv.config import ConvS2SConfig, ConvStackConfig, load_recipe
from dynconv.lab.bench.measure import peak_allocation
from dynconv.models import build
from dynconv.models.activation_checkpointing import set_activation_checkpointing
from dynconv.models.mixers import MIXERS
from dynconv.tasks import task_of
from dynconv.text import collate_pairs
from dynconv.train.update import BatchLoss

DROPOUTS = dict.fromkeys(("dropout", "attention_dropout", "weight_dropout", "input_dropout"), 0.2)
PAIRS = [(list(range(4, 24)), list(range(5, 25))), (list(range(6, 18)), list(range(7, 19)))]


def loss_and_gradients(recipe, wanted: bool, precision: str = "float32") -> list[torch.Tensor]:
    torch.manual_seed(0)
    model = build(recipe.model)
    set_activation_checkpointing(model, wanted)
    loss = BatchLoss(model, task_of(recipe), precision)(collate_pairs(PAIRS))
    loss.backward()
    after = torch.rand(3)  # the generator has come as far
    return [loss.detach(), after, *(p.grad for p in model.parameters())]


def with_mixer(recipe, mixer: str):
    stack = sized_stack(2, mixer, None if mixer == "attention" else (3, 7))
    model = replace(recipe.model, encoder=stack, decoder=stack, **DROPOUTS)
    return replace(recipe, model=model)


def require_equal(recipe, precision="float32"):
    plain, ours = (loss_and_gradients(recipe, wanted, precision) for wanted in (False, True))
    assert all(torch.equal(a, b) for a, b in zip(plain, ours, strict=True))


@pytest.mark.parametrize("mixer", MIXERS)
def test_gradients_are_equal_bit_for_bit(recipe, mixer):
    """With every kind of dropout, DropConnect included, whose numbers are drawn a second time."""
    require_equal(with_mixer(recipe, mixer))


def test_gradients_are_equal_under_autocast(recipe):
    require_equal(with_mixer(recipe, "dynamic"), "bfloat16")


def test_gradients_of_convs2s_and_a_language_model_are_equal(recipe):
    """Also where a residual connection skips blocks."""
    stack = ConvStackConfig(layers=3, channels=8, residual=(1, 2, 2))
    model = ConvS2SConfig(vocab_size=300, embedding=8, encoder=stack, decoder=stack, dropout=0.2)
    require_equal(replace(recipe, model=model))
    small = ["model.vocab_size=300", "model.channels=8", "model.ffn=8"]
    require_equal(load_recipe("austen-dynamic", small))


def test_memory_falls_by_more_than_half(recipe):
    """Each of twenty blocks keeps its input and, in the decoder, the source's keys and values."""
    stack = sized_stack(10, "dynamic", (3,) * 10)
    model = build(replace(recipe.model, encoder=stack, decoder=stack))
    batch = collate_pairs([([4] * 100, [5] * 100)] * 4)
    peaks = []
    loss_module = BatchLoss(model, task_of(recipe))
    for wanted in (False, True):
        set_activation_checkpointing(model, wanted)
        peaks.append(peak_allocation(lambda: loss_module(batch).backward()))
    assert peaks[1] < peaks[0] / 2
