"""Every shipped recipe and every row of an ablation is still what it was when it was recorded.

`recorded_recipes.json` has their names, the number of parameters of their models, and the numbers
printed in the papers. Change it only together with a recipe that is meant to change.
"""

import json
from dataclasses import asdict
from functools import cache

import pytest
import torch
from conftest import ROOT

from dynconv.config import Recipe
from dynconv.config import load as recipes
from dynconv.lab.experiments import config as ablations
from dynconv.models import build

RECORD = json.loads((ROOT / "tests" / "recorded_recipes.json").read_text(encoding="utf-8"))

RENAMED: dict[str, str] = {}
"""recipes that have another name today: the recorded name, and the new one"""


def recipe_names() -> set[str]:
    """What `dynconv train --list` shows."""
    return {path.stem for path in recipes.SHIPPED.glob("*.yaml")}


def load_recipe(name: str) -> Recipe:
    """A recipe as `dynconv train NAME` reads it."""
    return recipes.load(recipes.find(name))


@cache
def ablation_rows() -> dict[str, tuple[ablations.Ablation, ablations.Row]]:
    """Every row of every shipped ablation, by ABLATION:ROW."""
    loaded = {name: ablations.load(path) for name, path in ablations.shipped().items()}
    return {
        f"{name}:{row.name}": (table, row) for name, table in loaded.items() for row in table.rows
    }


def count_parameters(recipe: Recipe) -> int:
    """The number of parameters of a recipe's model, which takes no memory."""
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in build(recipe.model).parameters())


def test_names():
    assert recipe_names() == {RENAMED.get(name, name) for name in RECORD["recipes"]}
    assert set(ablation_rows()) == set(RECORD["ablations"])


@pytest.mark.parametrize("name", RECORD["recipes"])
def test_recipe(name):
    recipe = load_recipe(RENAMED.get(name, name))
    today = {
        "parameters": count_parameters(recipe),
        "published": [asdict(row) for row in recipe.published],
    }
    assert today == RECORD["recipes"][name]


@pytest.mark.parametrize("name", RECORD["ablations"])
def test_ablation_row(name):
    table, row = ablation_rows()[name]
    recipe = table.recipe(row)
    today = {
        "parameters": count_parameters(recipe),
        "row": row.row,
        "published": row.published,
        "updates": recipe.train.updates,
    }
    assert today == RECORD["ablations"][name]
