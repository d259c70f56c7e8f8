"""Builds a model from its configuration."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from dynconv.models.convs2s import ConvS2S
from dynconv.models.language import LanguageModel
from dynconv.models.seq2seq import Seq2Seq
from dynconv.models.translator import Translator

if TYPE_CHECKING:
    from dynconv.config import AnyModelConfig

MODEL_CLASSES: dict[str, Callable[..., Translator | LanguageModel]] = {
    "encoder-decoder": Seq2Seq,
    "convs2s": ConvS2S,
    "language-model": LanguageModel,
}
"""the classes of models, keyed by the entry `architecture` of their configurations"""


def build(config: AnyModelConfig) -> Translator | LanguageModel:
    """Build the model that `config` describes, with random weights.

    config  the `model` of a recipe, such as `load_recipe("help-de-en-dynamic").model`
    """
    if not hasattr(config, "architecture"):
        raise TypeError(
            f"build takes a model's configuration, such as load_recipe(NAME).model, not a "
            f"{type(config).__name__}"
        )
    return MODEL_CLASSES[config.architecture](config)


def count_parameters(config: AnyModelConfig) -> int:
    """Count a model's parameters without allocating them."""
    with torch.device("meta"):
        return sum(p.numel() for p in build(config).parameters())
