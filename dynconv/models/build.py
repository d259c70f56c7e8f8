"""From configuration to model: the one place that knows every mixer."""

from torch import nn

from dynconv import layers
from dynconv.config import ModelConfig
from dynconv.models.blocks import DecoderBlock, EncoderBlock
from dynconv.models.seq2seq import Seq2Seq


def build(config: ModelConfig) -> Seq2Seq:
    """The encoder-decoder that `config` describes (Wu et al. 2019, section 5.1)."""
    encoder = [
        EncoderBlock(config, build_mixer(config, mixer, kernel, causal=False))
        for mixer, kernel in config.encoder.each_layer()
    ]
    decoder = [
        DecoderBlock(config, build_mixer(config, mixer, kernel, causal=True))
        for mixer, kernel in config.decoder.each_layer()
    ]
    return Seq2Seq(config, encoder, decoder)


def build_mixer(config: ModelConfig, mixer: str, kernel: int | None, *, causal: bool) -> nn.Module:
    """One layer's mixer; `kernel` is the convolution's width, TaLK's reach, attention's window."""
    C, H = config.channels, config.heads
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
            return layers.LightConv(C, H, kernel, causal=causal, **gated)
        case "dynamic":
            return layers.DynamicConv(C, H, kernel, causal=causal, **gated)
        case "talk":
            return layers.TaLKConv(C, H, kernel, 0 if causal else kernel, **gated)
        case "average":
            return layers.AverageAttention(C, config.ffn, causal=causal)
    raise ValueError(f"no mixer {mixer!r}")
