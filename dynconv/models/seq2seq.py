"""The encoder-decoder, a Transformer with other mixers (Wu et al. 2019, section 5.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from torch import Tensor, nn

from dynconv.layers.history import select_rows
from dynconv.models.decoder import DecoderState, step_blocks
from dynconv.models.embedding import embed_tokens, token_embedding

if TYPE_CHECKING:
    from dynconv.config import ModelConfig


class Memory(NamedTuple):
    """Contains the encoder's output (B, S, C) and its pad_mask (B, S), True at padding."""

    states: Tensor
    pad_mask: Tensor | None

    def select(self, rows: Tensor) -> Memory:
        return select_rows(self, rows)


class Seq2Seq(nn.Module):
    """Maps source (B, S) and target tokens (B, T) to logits (B, T, V)."""

    max_positions: int | None = None  # sinusoids exist for every position

    def __init__(self, config: ModelConfig, encoder: list, decoder: list):
        super().__init__()
        self.config = config
        (S, V), C = config.vocab_sizes, config.channels
        self.target_embedding = token_embedding(V, C)
        shared = config.embeddings == "shared"
        self.source_embedding = self.target_embedding if shared else token_embedding(S, C)
        self.encoder, self.decoder = nn.ModuleList(encoder), nn.ModuleList(decoder)
        self.dropout = nn.Dropout(config.dropout)
        pre = config.norm == "pre"  # then the last sum is not normalised yet
        self.encoder_norm = nn.LayerNorm(C) if pre else nn.Identity()
        self.decoder_norm = nn.LayerNorm(C) if pre else nn.Identity()
        self.output = nn.Linear(C, V, bias=False)
        if config.embeddings == "separate":
            nn.init.normal_(self.output.weight, std=C**-0.5)
        else:
            self.output.weight = self.target_embedding.weight

    def encode(self, source: Tensor, pad_mask: Tensor | None = None) -> Memory:
        """Encode source (B, S) int64; pad_mask (B, S) bool is True at padding."""
        x = self.dropout(embed_tokens(self.source_embedding, source))
        for block in self.encoder:
            x = block(x, pad_mask)
        return Memory(self.encoder_norm(x), pad_mask)

    def hidden_states(self, target: Tensor, memory: Memory) -> Tensor:
        """Return hidden states (B, T, C) after each prefix of target (B, T), all at once."""
        x = self.dropout(embed_tokens(self.target_embedding, target))
        for block in self.decoder:
            x = block(x, source=(block.cross.project(memory.states), memory.pad_mask))
        return self.decoder_norm(x)

    def forward(self, source: Tensor, target: Tensor, pad_mask: Tensor | None = None) -> Tensor:
        """Return logits (B, T, V) of the token after each prefix of `target`."""
        return self.output(self.hidden_states(target, self.encode(source, pad_mask)))

    def start(self, memory: Memory) -> DecoderState:
        """Return the state before the first target position."""
        source = [block.cross.project(memory.states) for block in self.decoder]
        return DecoderState(0, [None] * len(self.decoder), source)

    def step(
        self, tokens: Tensor, memory: Memory, state: DecoderState
    ) -> tuple[Tensor, DecoderState]:
        """Return logits (N, n, V) after n new tokens (N, n), and the next state.

        N is B, or B x beam, where the hypotheses of a sentence are consecutive rows.
        """
        x = self.dropout(embed_tokens(self.target_embedding, tokens, state.position))
        x, state = step_blocks(self.decoder, x, state, memory.pad_mask)
        return self.output(self.decoder_norm(x)), state
