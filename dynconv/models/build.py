"""From configuration to model: the one place that knows every mixer."""

from torch import nn

from dynconv import layers
from dynconv.config import AnyModelConfig, ConvS2SConfig, LanguageModelConfig, ModelConfig
from dynconv.models.blocks import CausalBlock, DecoderBlock, EncoderBlock
from dynconv.models.convs2s import ConvS2S
from dynconv.models.language import LanguageModel
from dynconv.models.seq2seq import Seq2Seq


def build(config: AnyModelConfig) -> Seq2Seq | ConvS2S | LanguageModel:
    """The model that `config` describes."""
    if isinstance(config, ConvS2SConfig):
        return ConvS2S(config)
    if isinstance(config, LanguageModelConfig):
        decoder = [
            CausalBlock(config, build_mixer(config, mixer, kernel, causal=True))
            for mixer, kernel in config.decoder.each_layer()
        ]
        return LanguageModel(config, decoder)
    encoder = [
        EncoderBlock(config, build_mixer(config, mixer, kernel, causal=False))
        for mixer, kernel in config.encoder.each_layer()
    ]
    decoder = [
        DecoderBlock(config, build_mixer(config, mixer, kernel, causal=True))
        for mixer, kernel in config.decoder.each_layer()
    ]
    return Seq2Seq(config, encoder, decoder)


def build_mixer(
    config: ModelConfig | LanguageModelConfig, mixer: str, kernel: int | None, *, causal: bool
) -> nn.Module:
    """One layer's mixer; `kernel` is the convolution's width, TaLK's reach, attention's window."""
    C, H, kind = config.channels, config.heads, config.normalize
    gated = {
        "glu": config.glu,
        "weight_dropout": config.weight_dropout,
        "input_dropout": config.input_dropout,
    }
    match mixer:
        case "attention":
            dropout = config.attention_dropout
            return layers.SelfAttention(C, H, kernel, causal=causal, dropout=dropout)
        case "dense":
            return layers.DenseConv(C, kernel, causal=causal)
        case "depthwise":
            return layers.DepthwiseConv(C, kernel, causal=causal, **gated)
        case "light":
            return layers.LightConv(C, H, kernel, causal=causal, normalize=kind, **gated)
        case "dynamic":
            return layers.DynamicConv(C, H, kernel, causal=causal, normalize=kind, **gated)
        case "talk":
            right = 0 if causal else kernel
            return layers.TaLKConv(C, H, kernel, right, normalize=kind != "none", **gated)
        case "average":
            return layers.AverageAttention(C, config.ffn, causal=causal)
    raise ValueError(f"no mixer {mixer!r}")
