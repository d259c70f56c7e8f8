"""The nn.Modules that mix positions, and the adaptive embedding and softmax.

`forward(x, pad_mask)` maps whole sequences (B, T, C) to (B, T, C); pad_mask (B, T) is True at
padding. `step(x, state)` decodes with causal layers in eval mode: it takes the next n positions
(N, n, C) of N sequences, and the state, which is None before the first position. It returns the
outputs that `forward` would give there, and the next state: a NamedTuple of tensors with one row
per sequence, or an object with `select(rows)`, such as the `History` of convolutions and TaLK.
Layers that look ahead raise ValueError. `check_mixer` tries all of this on a layer of your own.

Call `step` under `torch.no_grad()`, because it is not for training: the convolutions and TaLK give
no gradient to their kernels or to their states, while the states of the other layers keep the graph
of all earlier steps.
"""

from dynconv.layers.adaptive import AdaptiveEmbedding, AdaptiveLogSoftmax
from dynconv.layers.attention import CrossAttention, SelfAttention
from dynconv.layers.average import AverageAttention
from dynconv.layers.contract import check_mixer
from dynconv.layers.convolution import DenseConv, DepthwiseConv, DynamicConv, LightConv
from dynconv.layers.retention import Retention
from dynconv.layers.selective import SelectiveSSM
from dynconv.layers.ssm import S4D
from dynconv.layers.talk import TaLKConv

__all__ = [
    "S4D",
    "AdaptiveEmbedding",
    "AdaptiveLogSoftmax",
    "AverageAttention",
    "CrossAttention",
    "DenseConv",
    "DepthwiseConv",
    "DynamicConv",
    "LightConv",
    "Retention",
    "SelectiveSSM",
    "SelfAttention",
    "TaLKConv",
    "check_mixer",
]
