"""The block: a mixer, cross-attention and a feed-forward network, each with a residual."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch.nn.functional as F
from torch import Tensor, nn

from dynconv.choices import Activation
from dynconv.layers import CrossAttention
from dynconv.layers.projection import xavier_linear
from dynconv.models.activation_checkpointing import Recomputable
from dynconv.models.mixers import build_mixer

if TYPE_CHECKING:
    from dynconv.config import LanguageModelConfig, Seq2SeqConfig, StackConfig

ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {"relu": F.relu, "swish": F.silu}


class FeedForward(nn.Module):
    """Computes W2 act(W1 x + b1) + b2 at each position (Wu et al. 2019, section 5.1)."""

    def __init__(self, channels: int, ffn: int, activation: Activation, dropout: float = 0.0):
        super().__init__()
        self.activation = ACTIVATIONS[activation]
        self.linear1 = xavier_linear(channels, ffn)
        self.linear2 = xavier_linear(ffn, channels)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear2(self.dropout(self.activation(self.linear1(x))))


class Residual(nn.Module):
    """Adds a sub-layer f to its input, and normalises the sum or the input of f.

    post-norm, as in the papers   norm(x + dropout(f(x)))
    pre-norm                      x + dropout(f(norm(x)))
    """

    def __init__(self, config: Seq2SeqConfig | LanguageModelConfig):
        super().__init__()
        self.pre = config.norm == "pre"
        self.norm = nn.LayerNorm(config.channels)
        self.dropout = nn.Dropout(config.dropout)

    def prepare(self, x: Tensor) -> Tensor:
        """Return the input of the sub-layer."""
        return self.norm(x) if self.pre else x

    def combine(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the sum of x and the sub-layer's output y."""
        total = x + self.dropout(y)
        return total if self.pre else self.norm(total)

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        return self.combine(x, sublayer(self.prepare(x)))


class Block(Recomputable):
    """Applies a mixer, attention to the source if `cross` is given, and a feed-forward network.

    `cross_inputs` are what `cross` takes: the source's keys and values, and its padding mask.
    """

    mixer: Any
    """an nn.Module, which in a decoder has a `step`"""

    def __init__(
        self,
        config: Seq2SeqConfig | LanguageModelConfig,
        mixer: nn.Module,
        cross: CrossAttention | None = None,
        activation_dropout: float = 0.0,
    ):
        super().__init__()
        self.mixer, self.cross = mixer, cross
        self.ffn = FeedForward(config.channels, config.ffn, config.activation, activation_dropout)
        self.around_mixer = Residual(config)
        self.around_cross = Residual(config) if cross else None
        self.around_ffn = Residual(config)

    def forward(
        self, x: Tensor, pad_mask: Tensor | None = None, cross_inputs: tuple | None = None
    ) -> Tensor:
        """Return the outputs at x (B, T, C); causal mixers need no mask of padding at the end."""
        return self._after_mixer(
            self.around_mixer(x, lambda z: self.mixer(z, pad_mask)), cross_inputs
        )

    def step(self, x: Tensor, state: Any, cross_inputs: tuple | None = None) -> tuple[Tensor, Any]:
        """Return the outputs at new positions x (N, n, C), and the next state of the mixer."""
        y, state = self.mixer.step(self.around_mixer.prepare(x), state)
        return self._after_mixer(self.around_mixer.combine(x, y), cross_inputs), state

    def _after_mixer(self, x: Tensor, cross_inputs: tuple | None) -> Tensor:
        if self.cross is not None:
            x = self.around_cross(x, lambda z: self.cross(z, *cross_inputs))  # type: ignore[misc]
        return self.around_ffn(x, self.ffn)


def build_blocks(
    config: Seq2SeqConfig | LanguageModelConfig,
    stack: StackConfig,
    *,
    causal: bool,
    cross: bool = False,
    activation_dropout: float = 0.0,
) -> nn.ModuleList:
    """Build the blocks of a stack, bottom to top; with `cross`, they attend to the source."""
    C, H, dropout = config.channels, config.heads, config.attention_dropout
    return nn.ModuleList(
        Block(
            config,
            build_mixer(config, mixer, size, causal=causal),
            CrossAttention(C, H, dropout=dropout) if cross else None,
            activation_dropout,
        )
        for mixer, size in stack.each_layer()
    )
