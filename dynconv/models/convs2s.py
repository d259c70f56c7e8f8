"""ConvS2S, a convolutional encoder-decoder (Gehring et al. 2017, section 3)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from dynconv.layers.convs2s import (
    SQRT_HALF,
    GatedConv,
    KeyedMemory,
    MultiStepAttention,
    PositionedEmbedding,
    weight_normed_linear,
)
from dynconv.layers.history import History
from dynconv.models.activation_checkpointing import Recomputable
from dynconv.models.decoder_state import DecoderState
from dynconv.models.translator import AttentiveTranslator

if TYPE_CHECKING:
    from dynconv.config import ConvS2SConfig, ConvStackConfig


class ConvBlock(Recomputable):
    """Combines a convolution, an optional attention and an optional residual connection.

    widths     channels of the stack's input and of all layers before this one
    residual   how many layers back the connection starts; 0 for none
    embedding  channels of what the attention attends to; None for a layer without attention
    """

    def __init__(
        self,
        widths: list[int],
        channels: int,
        kernel_size: int,
        residual: int,
        embedding: int | None,
        *,
        causal: bool,
        dropout: float,
    ):
        super().__init__()
        self.conv = GatedConv(widths[-1], channels, kernel_size, causal=causal, dropout=dropout)
        self.attention = None if embedding is None else MultiStepAttention(channels, embedding)
        width = widths[-residual] if residual else channels
        self.shortcut = (
            nn.Identity() if width == channels else weight_normed_linear(width, channels)
        )
        self.residual = residual

    def forward(
        self,
        y: Tensor,
        shortcut_input: Tensor | None,
        x: Tensor,
        memory: KeyedMemory | None,
        pad_mask: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Return the block's output, and the attention, if any.

        y               output of the block before this one
        shortcut_input  output where the residual connection starts; None without one
        x               the target embeddings, which are added to the query of the attention
        """
        return self._after_conv(self.conv(y, pad_mask), shortcut_input, x, memory)

    def step(
        self,
        y: Tensor,
        shortcut_input: Tensor | None,
        x: Tensor,
        memory: KeyedMemory | None,
        state: History | None,
    ) -> tuple[tuple[Tensor, Tensor | None], History]:
        """Return output and attention at new positions, and the next state of the convolution."""
        h, state = self.conv.step(y, state)
        return self._after_conv(h, shortcut_input, x, memory), state

    def _after_conv(
        self, h: Tensor, shortcut_input: Tensor | None, x: Tensor, memory: KeyedMemory | None
    ) -> tuple[Tensor, Tensor | None]:
        weights = None
        if self.attention is not None:
            h, weights = self.attention(h, x, memory)
        if self.residual:
            h = (h + self.shortcut(shortcut_input)) * SQRT_HALF
        return h, weights


class StackOutput(NamedTuple):
    """The outputs (B, T, C) of a stack, with what decoding and plots need besides."""

    hidden: Tensor
    attention: list[Tensor]
    """the attention (B, T, S) of each layer that attends"""
    mixer_states: list[History]
    """the next states of the convolutions; empty for whole sequences"""


class ConvStack(nn.Module):
    """Maps to the channels of the first layer, applies the layers, and maps to `output` channels.

    attends  whether each layer has attention
    """

    def __init__(
        self,
        config: ConvStackConfig,
        attends: tuple[bool, ...],
        embedding: int,
        output: int,
        *,
        causal: bool,
        dropout: float,
    ):
        super().__init__()
        layers = config.each_layer()
        widths, blocks = [layers[0][0]], []
        for layer, attends_here in zip(layers, attends, strict=True):
            attended = embedding if attends_here else None
            block = ConvBlock(widths, *layer, embedding=attended, causal=causal, dropout=dropout)
            blocks.append(block)
            widths.append(layer[0])
        self.in_proj = weight_normed_linear(embedding, widths[0], retained=1 - dropout)
        self.blocks = nn.ModuleList(blocks)
        self.out_proj = weight_normed_linear(widths[-1], output)

    def forward(
        self,
        x: Tensor,
        pad_mask: Tensor | None = None,
        memory: KeyedMemory | None = None,
        mixer_states: list[History | None] | None = None,
    ) -> StackOutput:
        """Apply the layers to x (B, T, E): to whole sequences, or to new positions only.

        memory        what the layers attend to
        mixer_states  the convolutions' states, which new positions x continue; None if x are whole
        """
        outputs = [self.in_proj(x)]
        attention = []
        next_states = []
        block: Any  # to type checkers every attribute of a module is a tensor or a module
        for i, block in enumerate(self.blocks):
            y = outputs[-1]
            shortcut_input = outputs[-block.residual] if block.residual else None
            if mixer_states is None:
                h, weights = block(y, shortcut_input, x, memory, pad_mask)
            else:
                (h, weights), state = block.step(y, shortcut_input, x, memory, mixer_states[i])
                next_states.append(state)
            outputs.append(h)
            if weights is not None:
                attention.append(weights)
        return StackOutput(self.out_proj(outputs[-1]), attention, next_states)


class ConvS2S(AttentiveTranslator):
    """Encodes and decodes with stacks of gated convolutions; each layer of the decoder can attend.

    Positions are learned up to `max_positions`; more tokens raise UserError.
    """

    def __init__(self, config: ConvS2SConfig):
        super().__init__()
        self.config = config
        self.max_positions = config.position_limit
        E, p = config.embedding, config.dropout
        source, target = config.vocab_sizes
        self.source_embedding, self.target_embedding = (
            PositionedEmbedding(
                types, E, config.max_positions if config.positions in ("both", side) else None, p
            )
            for side, types in (("source", source), ("target", target))
        )
        no_attention = (False,) * config.encoder.layers
        self.encoder = ConvStack(config.encoder, no_attention, E, E, causal=False, dropout=p)
        self.decoder = ConvStack(
            config.decoder, config.attends, E, config.output_width, causal=True, dropout=p
        )
        self.dropout = nn.Dropout(p)
        self.output = weight_normed_linear(config.output_width, target, retained=1 - p)
        self.gradient_share = 1 / sum(config.attends)

    def encode(self, source: Tensor, pad_mask: Tensor | None = None) -> KeyedMemory:
        """Encode source (B, S) int64; pad_mask (B, S) bool is True at padding, at either end.

        The gradient of z is divided by the number of layers that attend (section 3.4); the gradient
        of e, in the values, is not. The released code divides by twice that number.
        """
        e = self.source_embedding(source, pad_mask=pad_mask)
        z = self.encoder(e, pad_mask).hidden
        z = torch.lerp(z.detach(), z, self.gradient_share)  # the same z with a smaller gradient
        return KeyedMemory(z, (z + e) * SQRT_HALF, pad_mask)

    def hidden_states(self, prefix: Tensor, memory: KeyedMemory) -> Tensor:
        return self._decode(prefix, memory).hidden

    def attention(self, prefix: Tensor, memory: KeyedMemory) -> Tensor:
        """Return attention (B, T, S) of prefix (B, T) to the source, averaged over the layers."""
        return torch.stack(self._decode(prefix, memory).attention).mean(0)

    def _decode(
        self,
        tokens: Tensor,
        memory: KeyedMemory,
        start: int = 0,
        mixer_states: list[History | None] | None = None,
    ) -> StackOutput:
        """Decode tokens (B, T) of the target, the first of them at position `start`."""
        g = self.target_embedding(tokens, start)
        decoded = self.decoder(g, memory=memory, mixer_states=mixer_states)
        return decoded._replace(hidden=self.dropout(decoded.hidden))

    def start(self, memory: KeyedMemory) -> DecoderState:
        return DecoderState(0, [None] * len(self.decoder.blocks), source_caches=[])

    def step(
        self, tokens: Tensor, memory: KeyedMemory, state: DecoderState
    ) -> tuple[Tensor, DecoderState]:
        decoded = self._decode(tokens, memory, state.position, state.mixer_states)
        state = DecoderState(
            state.position + tokens.shape[1], decoded.mixer_states, source_caches=[]
        )
        return self.output(decoded.hidden), state
