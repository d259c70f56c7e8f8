"""Contains what encoder-decoder and language model share: embeddings and decoding by steps."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dynconv.layers.attention import KVCache


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
    source: list[KVCache | None]

    def select(self, rows: Tensor, sentences: Tensor | None = None) -> DecoderState:
        """Return the state of these rows and of these sentences, or of all sentences if None."""
        mixers, source = [mixer.select(rows) for mixer in self.mixers], self.source
        if sentences is not None:
            source = [projected.select(sentences) for projected in source]
        return DecoderState(self.position, mixers, source)


def embed_tokens(table: nn.Module, tokens: Tensor, start: int = 0) -> Tensor:
    """Return sqrt(C) times each token's embedding plus its position's: (B, T) to (B, T, C)."""
    x = table(tokens)
    C = x.shape[2]
    positions = torch.arange(start, start + tokens.shape[1], device=tokens.device)
    return x * C**0.5 + sinusoids(positions, C).to(x.dtype)


def step_blocks(
    blocks: nn.ModuleList, x: Tensor, state: DecoderState, pad_mask: Tensor | None = None
) -> tuple[Tensor, DecoderState]:
    """Return the last block's outputs at n new positions x (N, n, C), and the next state."""
    mixers = []
    for block, mixer, source in zip(blocks, state.mixers, state.source, strict=True):
        x, mixer = block.step(x, mixer, (source, pad_mask))
        mixers.append(mixer)
    return x, DecoderState(state.position + x.shape[1], mixers, state.source)
