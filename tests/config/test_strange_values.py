"""Any value of any key of a recipe or an experiment is accepted, or refused in one line."""

from dataclasses import fields

import pytest
from helpers.schema import KEYS, STRANGE

from dynconv.config import load_recipe
from dynconv.config.experiment import Experiment, ExperimentRow, LaptopVersion
from dynconv.errors import UserError
from dynconv.schema import validated

EXPERIMENTS = [
    (each, field.name)
    for each in (Experiment, LaptopVersion, ExperimentRow)
    for field in fields(each)
]


@pytest.mark.parametrize(("recipe", "key", "kind"), KEYS)
def test_every_value_of_every_key(recipe, key, kind):
    for value in STRANGE:
        try:
            load_recipe(recipe, [f"{key}={value}"])
        except UserError as error:
            assert "\n" not in str(error) and len(str(error)) < 600
            assert key.rpartition(".")[0] in str(error)


@pytest.mark.parametrize(("section", "name"), EXPERIMENTS)
def test_every_value_of_an_experiment(section, name):
    for value in (7, 10**30, float("nan"), True, [1], {"a": 1}, {"a": {"b": []}}, "x" * 5000, None):
        with pytest.raises(UserError) as error:
            validated(section, {name: value}, "mine.yaml")
        assert "\n" not in str(error.value) and len(str(error.value)) < 600
