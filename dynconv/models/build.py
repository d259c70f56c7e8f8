"""From configuration to model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dynconv.models.blocks import CausalBlock, DecoderBlock, EncoderBlock
from dynconv.models.convs2s import ConvS2S
from dynconv.models.language import LanguageModel
from dynconv.models.mixers import build_mixer
from dynconv.models.seq2seq import Seq2Seq

if TYPE_CHECKING:
    from dynconv.config import AnyModelConfig


def build(config: AnyModelConfig) -> Seq2Seq | ConvS2S | LanguageModel:
    """Build the model that `config` describes, with random weights."""
    if config.architecture == "convs2s":
        return ConvS2S(config)
    if config.architecture == "language-model":
        decoder = [
            CausalBlock(config, build_mixer(config, mixer, size, causal=True))
            for mixer, size in config.decoder.each_layer()
        ]
        return LanguageModel(config, decoder)
    encoder = [
        EncoderBlock(config, build_mixer(config, mixer, size, causal=False))
        for mixer, size in config.encoder.each_layer()
    ]
    decoder = [
        DecoderBlock(config, build_mixer(config, mixer, size, causal=True))
        for mixer, size in config.decoder.each_layer()
    ]
    return Seq2Seq(config, encoder, decoder)
