"""The schema of a recipe: frozen dataclasses that YAML fills (`dynconv.config.load`)."""

from dynconv.config.convs2s import ConvS2SConfig, ConvStackConfig
from dynconv.config.data import DataConfig
from dynconv.config.decode import DecodeConfig
from dynconv.config.language import LanguageModelConfig
from dynconv.config.recipe import MODELS, AnyModelConfig, Published, Recipe
from dynconv.config.seq2seq import ModelConfig
from dynconv.config.stack import StackConfig
from dynconv.config.train import TrainConfig

__all__ = [
    "MODELS",
    "AnyModelConfig",
    "ConvS2SConfig",
    "ConvStackConfig",
    "DataConfig",
    "DecodeConfig",
    "LanguageModelConfig",
    "ModelConfig",
    "Published",
    "Recipe",
    "StackConfig",
    "TrainConfig",
]
