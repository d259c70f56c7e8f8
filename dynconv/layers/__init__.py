"""Modules that own parameters: (B, T, C) in, (B, T, C) out, and `step` for decoding."""

from dynconv.layers.adaptive import AdaptiveEmbedding, AdaptiveSoftmax
from dynconv.layers.attention import CrossAttention, SelfAttention
from dynconv.layers.average import AverageAttention
from dynconv.layers.convolution import DenseConv, DepthwiseConv, DynamicConv, LightConv
from dynconv.layers.talk import TaLKConv

__all__ = [
    "AdaptiveEmbedding",
    "AdaptiveSoftmax",
    "AverageAttention",
    "CrossAttention",
    "DenseConv",
    "DepthwiseConv",
    "DynamicConv",
    "LightConv",
    "SelfAttention",
    "TaLKConv",
]
