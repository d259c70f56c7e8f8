"""The encoder-decoder, a Transformer with any mixer (Wu et al. 2019, section 5.1)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

if TYPE_CHECKING:
    from dynconv.config import ModelConfig


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


class Memory(NamedTuple):
    """Contains the encoder's output (B, S, C) and its pad_mask (B, S), True at padding."""

    states: Tensor
    pad_mask: Tensor | None

    def select(self, sentences: Tensor) -> Memory:
        """Return the memory of these sentences."""
        return Memory(*select_rows(self, sentences))


def select_rows(parts: Iterable[Tensor | None], rows: Tensor) -> list[Tensor | None]:
    """Return these rows of each tensor."""
    return [None if part is None else part.index_select(0, rows) for part in parts]


class DecoderState(NamedTuple):
    """Keeps what `step` needs: the position, mixer states, and the source's keys and values.

    Mixer states have N = B x beam rows, where the hypotheses of a sentence are consecutive; keys
    and values have one per sentence.
    """

    position: int
    mixers: list[Any]
    projected: list[tuple[Tensor, Tensor]]

    def select(self, rows: Tensor, sentences: Tensor | None = None) -> DecoderState:
        """Return the state of these rows and of these sentences, or of all sentences if None."""
        mixers, projected = [mixer.select(rows) for mixer in self.mixers], self.projected
        if sentences is not None:
            projected = [tuple(select_rows(pair, sentences)) for pair in projected]
        return DecoderState(self.position, mixers, projected)


class Seq2Seq(nn.Module):
    """Maps source (B, S) and target tokens (B, T) to logits (B, T, V)."""

    max_positions: int | None = None
    """most tokens of a source or a prefix: sinusoids have no limit"""

    def __init__(self, config: ModelConfig, encoder: list, decoder: list):
        super().__init__()
        self.config = config
        (S, V), C = config.vocab_sizes, config.channels
        self.target_embedding = embedding(V, C)
        shared = config.embeddings == "shared"
        self.source_embedding = self.target_embedding if shared else embedding(S, C)
        self.encoder, self.decoder = nn.ModuleList(encoder), nn.ModuleList(decoder)
        self.dropout = nn.Dropout(config.dropout)
        pre = config.norm == "pre"  # its last residual sum has not been normalised
        self.encoder_norm = nn.LayerNorm(C) if pre else nn.Identity()
        self.decoder_norm = nn.LayerNorm(C) if pre else nn.Identity()
        self.output = nn.Linear(C, V, bias=False)
        if config.embeddings == "separate":
            nn.init.normal_(self.output.weight, std=C**-0.5)
        else:
            self.output.weight = self.target_embedding.weight

    def embed(self, table: nn.Embedding, tokens: Tensor, start: int = 0) -> Tensor:
        """Return sqrt(C) times the token's embedding plus its position's; (B, T) to (B, T, C)."""
        positions = torch.arange(start, start + tokens.shape[1], device=tokens.device)
        x = table(tokens) * self.config.channels**0.5
        return self.dropout(x + sinusoids(positions, self.config.channels).to(x.dtype))

    def encode(self, source: Tensor, pad_mask: Tensor | None = None) -> Memory:
        """Encode source (B, S) int64; pad_mask (B, S) bool is True at padding."""
        x = self.embed(self.source_embedding, source)
        for block in self.encoder:
            x = block(x, pad_mask)
        return Memory(self.encoder_norm(x), pad_mask)

    def decode(self, target: Tensor, memory: Memory) -> Tensor:
        """Return hidden states (B, T, C) after each prefix of target (B, T), all at once."""
        x = self.embed(self.target_embedding, target)
        for block in self.decoder:
            x = block(x, memory.states, memory.pad_mask)
        return self.decoder_norm(x)

    def forward(self, source: Tensor, target: Tensor, pad_mask: Tensor | None = None) -> Tensor:
        """Return logits (B, T, V) of the token after each prefix of `target`."""
        return self.output(self.decode(target, self.encode(source, pad_mask)))

    def start(self, memory: Memory) -> DecoderState:
        """Return the state before the first target position."""
        projected = [block.cross.project(memory.states) for block in self.decoder]
        return DecoderState(0, [None] * len(self.decoder), projected)

    def step(
        self, tokens: Tensor, memory: Memory, state: DecoderState
    ) -> tuple[Tensor, DecoderState]:
        """Return logits (N, n, V) after n new tokens (N, n), and the next state.

        N is B, or B x beam, where the hypotheses of a sentence are consecutive rows.
        """
        x = self.embed(self.target_embedding, tokens, state.position)
        mixers = []
        for block, mixer, projected in zip(
            self.decoder, state.mixers, state.projected, strict=True
        ):
            x, mixer = block.step(x, projected, memory.pad_mask, mixer)
            mixers.append(mixer)
        logits = self.output(self.decoder_norm(x))
        return logits, DecoderState(state.position + tokens.shape[1], mixers, state.projected)


def embedding(vocab_size: int, channels: int) -> nn.Embedding:
    """Return embeddings drawn from N(0, 1 / C); the model scales them by sqrt(C)."""
    table = nn.Embedding(vocab_size, channels)
    nn.init.normal_(table.weight, std=channels**-0.5)
    return table
