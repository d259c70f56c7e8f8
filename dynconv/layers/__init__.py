"""Defines layers that mix positions, as nn.Modules that map (B, T, C) to (B, T, C).

`forward(x, pad_mask)` sees whole sequences; pad_mask (B, T) is True at padding. `step(x, state)` is
for decoding with causal layers in eval mode, and raises ValueError for layers that look ahead: it
takes the next n positions (N, n, C) of N sequences and returns their outputs, which equal those of
`forward`, and the next state. A state of None is the start of a sequence; no gradient flows through
states. The adaptive embedding and softmax map from and to tokens instead.
"""

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
