"""What encoder-decoder and language model share: embeddings, and a stack of causal blocks."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dynconv.layers.attention import KeysValues


def sinusoids(positions: Tensor, channels: int) -> Tensor:
    """Return sinusoidal position embeddings (T, C) of positions (T,): sines, then cosines.

    The wavelengths of the C // 2 sines grow geometrically from 2 pi to 10,000 x 2 pi.
    """
    half = channels // 2
    rate = torch.exp(
        torch.arange(half, device=positions.device) * (-math.log(10_000) / max(half - 1, 1))
    )
    angle = positions[:, None] * rate
    return F.pad(torch.cat([angle.sin(), angle.cos()], dim=1), (0, channels % 2))


def embedding(vocab_size: int, channels: int) -> nn.Embedding:
    """Return embeddings drawn from N(0, 1 / C); the model scales them by sqrt(C)."""
    table = nn.Embedding(vocab_size, channels)
    nn.init.normal_(table.weight, std=channels**-0.5)
    return table


class DecoderState(NamedTuple):
    """Keeps what `step` needs: the position, each layer's mixer state, and the source.

    Mixer states have N = B x beam rows, where the hypotheses of a sentence are consecutive; the
    keys and values of the source have one per sentence. A language model has none (None).
    """

    position: int
    mixers: list[Any]
    source: list[KeysValues | None]

    def select(self, rows: Tensor, sentences: Tensor | None = None) -> DecoderState:
        """Return the state of these rows and of these sentences, or of all sentences if None."""
        mixers, source = [mixer.select(rows) for mixer in self.mixers], self.source
        if sentences is not None:
            source = [projected.select(sentences) for projected in source]
        return DecoderState(self.position, mixers, source)


class Decoder(nn.Module):
    """Embeds tokens and applies causal blocks, `self.decoder`: the base of both models."""

    max_positions: int | None = None
    """most tokens of a source or a text: sinusoids have no limit"""

    def embed(self, table: nn.Module, tokens: Tensor, start: int = 0) -> Tensor:
        """Return sqrt(C) times the token's embedding plus its position's; (B, T) to (B, T, C)."""
        C = self.config.channels
        positions = torch.arange(start, start + tokens.shape[1], device=tokens.device)
        x = table(tokens) * C**0.5
        return self.dropout(x + sinusoids(positions, C).to(x.dtype))

    def step_blocks(
        self, x: Tensor, state: DecoderState, pad_mask: Tensor | None = None
    ) -> tuple[Tensor, DecoderState]:
        """Return hidden states at n new positions, given embedded (N, n, C), and the next state."""
        mixers = []
        for block, mixer, source in zip(self.decoder, state.mixers, state.source, strict=True):
            x, mixer = block.step(x, mixer, (source, pad_mask))
            mixers.append(mixer)
        return self.decoder_norm(x), DecoderState(state.position + x.shape[1], mixers, state.source)
