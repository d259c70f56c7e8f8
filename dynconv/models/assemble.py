"""Builds a model from its configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from dynconv.layers import CrossAttention
from dynconv.models.blocks import Block
from dynconv.models.convs2s import ConvS2S
from dynconv.models.language import LanguageModel
from dynconv.models.mixers import build_mixer
from dynconv.models.seq2seq import Seq2Seq
from dynconv.models.translator import Translator

if TYPE_CHECKING:
    from dynconv.config import AnyModelConfig, LanguageModelConfig, Seq2SeqConfig, StackConfig


def build(config: AnyModelConfig) -> Translator | LanguageModel:
    """Build the model that `config` describes, with random weights.

    config  the `model` of a recipe, such as `load_recipe("help-de-en-dynamic").model`
    """
    if not hasattr(config, "architecture"):
        raise TypeError(
            f"build takes a model's configuration, such as load_recipe(NAME).model, not a "
            f"{type(config).__name__}"
        )
    if config.architecture == "convs2s":
        return ConvS2S(config)
    if config.architecture == "language-model":
        dropout = config.activation_dropout
        decoder = build_blocks(config, config.decoder, causal=True, activation_dropout=dropout)
        return LanguageModel(config, decoder)
    encoder = build_blocks(config, config.encoder, causal=False)
    return Seq2Seq(config, encoder, build_blocks(config, config.decoder, causal=True, cross=True))


def build_blocks(
    config: Seq2SeqConfig | LanguageModelConfig,
    stack: StackConfig,
    causal: bool,
    cross: bool = False,
    activation_dropout: float = 0.0,
) -> list[Block]:
    """Build the blocks of a stack, bottom to top; with `cross`, they attend to the source."""
    C, H, dropout = config.channels, config.heads, config.attention_dropout
    return [
        Block(
            config,
            build_mixer(config, mixer, size, causal=causal),
            CrossAttention(C, H, dropout=dropout) if cross else None,
            activation_dropout,
        )
        for mixer, size in stack.each_layer()
    ]


def count_parameters(config: AnyModelConfig) -> int:
    """Count a model's parameters without allocating them."""
    with torch.device("meta"):
        return sum(p.numel() for p in build(config).parameters())
