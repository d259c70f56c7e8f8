"""Recipes and experiments, loaded from YAML."""

from dynconv.config.experiment import Experiment, ExperimentRow
from dynconv.config.find import (
    require_experiment,
    require_recipe,
    run_name,
    shipped_experiments,
    shipped_recipes,
)
from dynconv.config.load import (
    dump_recipe,
    list_differences,
    load_experiment,
    load_recipe,
    load_row,
    recipe_names,
)
from dynconv.config.model import (
    MODEL_CONFIGS,
    AnyModelConfig,
    ConvS2SConfig,
    LanguageModelConfig,
    Seq2SeqConfig,
)
from dynconv.config.recipe import DataConfig, DecodeConfig, PublishedScore, Recipe, TrainConfig
from dynconv.config.stack import ConvStackConfig, StackConfig

__all__ = [
    "MODEL_CONFIGS", "AnyModelConfig", "ConvS2SConfig", "ConvStackConfig", "DataConfig",
    "DecodeConfig", "Experiment", "ExperimentRow", "LanguageModelConfig", "PublishedScore",
    "Recipe", "Seq2SeqConfig", "StackConfig", "TrainConfig", "dump_recipe", "list_differences",
    "load_experiment", "load_recipe", "load_row", "recipe_names", "require_experiment",
    "require_recipe", "run_name", "shipped_experiments", "shipped_recipes",
]  # fmt: skip
