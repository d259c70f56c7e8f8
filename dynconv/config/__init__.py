"""Defines recipes and experiments, and loads them from YAML."""

from dynconv.config.experiment import Experiment, Row
from dynconv.config.load import (
    differences,
    dump_recipe,
    find_experiment,
    find_recipe,
    load_experiment,
    load_recipe,
    load_row,
    run_name,
    shipped_experiments,
    shipped_recipes,
)
from dynconv.config.model import (
    MODELS,
    AnyModelConfig,
    ConvS2SConfig,
    ConvStackConfig,
    LanguageModelConfig,
    ModelConfig,
    StackConfig,
)
from dynconv.config.recipe import DataConfig, DecodeConfig, Published, Recipe, TrainConfig

__all__ = [
    "MODELS", "AnyModelConfig", "ConvS2SConfig", "ConvStackConfig", "DataConfig", "DecodeConfig",
    "Experiment", "LanguageModelConfig", "ModelConfig", "Published", "Recipe", "Row", "StackConfig",
    "TrainConfig", "differences", "dump_recipe", "find_experiment", "find_recipe",
    "load_experiment", "load_recipe", "load_row", "run_name", "shipped_experiments",
    "shipped_recipes",
]  # fmt: skip
