"""Every shipped recipe and every row of an experiment is still what it was when it was recorded.

`recorded_recipes.json` has their names, the number of parameters of their models, and the numbers
printed in the papers. Change it only together with a recipe that is meant to change.
"""

import json
from dataclasses import asdict
from functools import cache

import pytest
import torch
from conftest import ROOT

from dynconv import config
from dynconv.config import Experiment, ExperimentRow, Recipe, recipe_names
from dynconv.models import build

RECORD = json.loads((ROOT / "tests/config/recorded_recipes.json").read_text(encoding="utf-8"))

MOVED = {
    "wmt16-en-de-table3-": "wu2019-table3:",
    "wmt16-en-de-table6-": "wu2019-table6:",
    "wmt16-en-de-table7-": "wu2019-table7:decoder-",
    "wmt14-en-de-convs2s-table4-": "convs2s-table4:",
    "wmt14-en-de-convs2s-table5-": "convs2s-table5:attention-",
    "wmt14-en-de-convs2s-table7-": "convs2s-table7:",
    "wmt14-en-de-convs2s-table8-": "convs2s-table8:",
    "iwslt14-de-en-talk-table7-": "talk2020-table7:",
}
"""recipes that are rows of an experiment today: how the recorded names and the new ones begin"""

RENAMED = {
    "wmt16-en-de-table3-dynamic": ["wu2019-table3:dynamic", "wu2019-table6:softmax"],
    "wmt16-en-de-table3-no-softmax": ["wu2019-table3:dynamic-no-softmax", "wu2019-table6:none"],
    "wmt16-en-de-table3-window": ["wu2019-table3:attention-window"],
    "iwslt14-de-en-talk-table7-none": ["talk2020-table7:sums"],
    "iwslt14-de-en-talk-table7-dropout": ["talk2020-table7:offset-dropout"],
    "iwslt14-de-en-talk-table7-heads-512": ["talk2020-table7:heads-192"],
}
"""those among them whose row has another name, or that are rows of two tables"""


def names_today(recorded: str) -> list[str]:
    """The names that a recorded recipe has today."""
    for old, new in MOVED.items():
        if recorded.startswith(old):
            return RENAMED.get(recorded, [new + recorded.removeprefix(old)])
    return [recorded]


@cache
def experiment_rows() -> dict[str, tuple[Experiment, ExperimentRow]]:
    """Every row of every experiment that has a laptop's version, by EXPERIMENT:ROW."""
    paths = config.shipped_experiments()
    loaded = {name: config.load_experiment(path) for name, path in paths.items()}
    return {
        f"{name}:{row.name}": (table, row)
        for name, table in loaded.items()
        for row in table.rows
        if table.laptop or table.base is None
    }


def count_parameters(recipe: Recipe) -> int:
    """The number of parameters of a recipe's model, which takes no memory."""
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in build(recipe.model).parameters())


def test_every_recorded_recipe_is_still_there():
    recorded = sorted(n for r in RECORD["recipes"] for n in names_today(r))
    remedy = "add a recipe with the parameters that `dynconv train NAME --dry-run` prints"
    assert sorted(recipe_names()) == recorded, f"recorded_recipes.json: {remedy}"
    assert set(experiment_rows()) == set(RECORD["experiments"])


@pytest.mark.parametrize("name", RECORD["recipes"])
def test_a_recipe_is_the_recorded_one(name):
    recipes = [config.load_recipe(today) for today in names_today(name)]
    published = [asdict(row) for recipe in recipes for row in recipe.published]
    for recipe in recipes:
        today = {"parameters": count_parameters(recipe), "published": published}
        assert today == RECORD["recipes"][name]


@pytest.mark.parametrize("name", RECORD["experiments"])
def test_an_experiment_row_is_the_recorded_one(name):
    table, row = experiment_rows()[name]
    recipe = config.load_row(table, row)
    today = {
        "parameters": count_parameters(recipe),
        "row": row.printed_name,
        "published": row.published,
        "updates": recipe.train.updates,
    }
    assert today == RECORD["experiments"][name]
