"""Blocks of the encoder and the decoder, whose sub-layers have residual connections."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch.nn.functional as F
from torch import Tensor, nn

from dynconv.layers import CrossAttention
from dynconv.layers.projection import linear

if TYPE_CHECKING:
    from dynconv.config import LanguageModelConfig, ModelConfig


class FeedForward(nn.Module):
    """Computes W2 act(W1 x + b1) + b2 at every position (Wu et al. 2019, section 5.1)."""

    def __init__(self, channels: int, ffn: int, activation: str, dropout: float = 0.0):
        super().__init__()
        self.activation = {"relu": F.relu, "swish": F.silu}[activation]
        self.linear1 = linear(channels, ffn)
        self.linear2 = linear(ffn, channels)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear2(self.dropout(self.activation(self.linear1(x))))


class Residual(nn.Module):
    """Adds a sub-layer to its input, x + dropout(f(x)), and normalises.

    The sum is normalised ("post", as in the papers), or the input of f is ("pre").
    """

    def __init__(self, config: ModelConfig | LanguageModelConfig):
        super().__init__()
        self.pre = config.norm == "pre"
        self.norm = nn.LayerNorm(config.channels)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        if self.pre:
            return x + self.dropout(sublayer(self.norm(x)))
        return self.norm(x + self.dropout(sublayer(x)))

    def step(self, x: Tensor, sublayer: Callable, state) -> tuple[Tensor, Any]:
        """Do the same with a sub-layer (z, state) -> (y, state); return also the next state."""

        def stateless(z: Tensor) -> Tensor:
            nonlocal state
            y, state = sublayer(z, state)
            return y

        return self(x, stateless), state


class EncoderBlock(nn.Module):
    """Applies a mixer, then the feed-forward network."""

    def __init__(self, config: ModelConfig, mixer: nn.Module):
        super().__init__()
        self.mixer = mixer
        self.ffn = FeedForward(config.channels, config.ffn, config.activation)
        self.around_mixer, self.around_ffn = Residual(config), Residual(config)

    def forward(self, x: Tensor, pad_mask: Tensor | None) -> Tensor:
        x = self.around_mixer(x, lambda z: self.mixer(z, pad_mask))
        return self.around_ffn(x, self.ffn)


class DecoderBlock(nn.Module):
    """Applies a causal mixer, attention to the source, and the feed-forward network.

    The mixer needs no padding mask, because padding is at the end and no position looks ahead.
    """

    def __init__(self, config: ModelConfig, mixer: nn.Module):
        super().__init__()
        self.mixer = mixer
        self.cross = CrossAttention(config.channels, config.heads, dropout=config.attention_dropout)
        self.ffn = FeedForward(config.channels, config.ffn, config.activation)
        self.around_mixer, self.around_cross = Residual(config), Residual(config)
        self.around_ffn = Residual(config)

    def forward(self, x: Tensor, memory: Tensor, pad_mask: Tensor | None) -> Tensor:
        x = self.around_mixer(x, self.mixer)
        return self._after_mixer(x, self.cross.project(memory), pad_mask)

    def step(self, x: Tensor, projected, pad_mask: Tensor | None, state):
        """Return the outputs at new positions x (N, n, C), and the next state of the mixer.

        projected  the source's keys and values, from `cross.project`
        """
        x, state = self.around_mixer.step(x, self.mixer.step, state)
        return self._after_mixer(x, projected, pad_mask), state

    def _after_mixer(self, x: Tensor, projected, pad_mask: Tensor | None) -> Tensor:
        x = self.around_cross(x, lambda z: self.cross(z, projected, pad_mask))
        return self.around_ffn(x, self.ffn)


class CausalBlock(nn.Module):
    """Applies a causal mixer, then the feed-forward network: a decoder block without a source."""

    def __init__(self, config: LanguageModelConfig, mixer: nn.Module):
        super().__init__()
        self.mixer = mixer
        self.ffn = FeedForward(
            config.channels, config.ffn, config.activation, config.activation_dropout
        )
        self.around_mixer, self.around_ffn = Residual(config), Residual(config)

    def forward(self, x: Tensor) -> Tensor:
        return self.around_ffn(self.around_mixer(x, self.mixer), self.ffn)

    def step(self, x: Tensor, state) -> tuple[Tensor, Any]:
        """Return the outputs at new positions x (B, n, C), and the next state of the mixer."""
        x, state = self.around_mixer.step(x, self.mixer.step, state)
        return self.around_ffn(x, self.ffn), state
