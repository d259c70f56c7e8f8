"""Decoder-only language models (Wu et al. 2019, section 5.3; Baevski and Auli 2019)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch.nn.functional as F
from torch import Tensor, nn

from dynconv.dtypes import upcast
from dynconv.layers.adaptive import AdaptiveEmbedding, AdaptiveLogSoftmax
from dynconv.models.blocks import build_blocks
from dynconv.models.decoder_state import DecoderState, step_blocks
from dynconv.models.embedding import embed_tokens, token_embedding
from dynconv.models.loss import projected_loss

if TYPE_CHECKING:
    from dynconv.config import LanguageModelConfig


class LanguageModel(nn.Module):
    """Maps tokens (B, T) to log-probabilities (B, T, V) of the token after each of them.

    With `config.cutoffs`, its embeddings and softmax are adaptive.
    """

    max_positions: int | None = None  # sinusoids exist for every position

    embedding: AdaptiveEmbedding | nn.Embedding
    output: AdaptiveLogSoftmax | LinearLogSoftmax

    def __init__(self, config: LanguageModelConfig):
        super().__init__()
        self.config = config
        # A seed gives the same weights only if they are drawn in the same order, the blocks' first.
        dropout = config.activation_dropout
        decoder = build_blocks(config, config.decoder, causal=True, activation_dropout=dropout)
        V = config.vocab_size
        C = config.channels
        tied = config.embeddings == "tied"
        if config.cutoffs:
            edges, widths = config.band_edges, config.widths
            self.embedding = AdaptiveEmbedding(C, edges, widths)
            shared = self.embedding if tied else None
            dropout = config.softmax_dropout
            self.output = AdaptiveLogSoftmax(C, edges, widths, dropout=dropout, tied=shared)
        else:
            self.embedding = token_embedding(V, C)
            self.output = LinearLogSoftmax(C, V)
            if tied:
                self.output.weight = self.embedding.weight
        self.decoder = decoder
        self.decoder_norm = nn.LayerNorm(C) if config.final_norm else nn.Identity()
        self.dropout = nn.Dropout(config.dropout)

    def hidden_states(self, tokens: Tensor) -> Tensor:
        """Return hidden states (B, T, C) after each prefix of tokens (B, T), padded at the end."""
        x = self.dropout(embed_tokens(self.embedding, tokens))
        for block in self.decoder:
            x = block(x)
        return self.decoder_norm(x)

    def nll(self, hidden: Tensor, target: Tensor) -> Tensor:
        """Return -log p (N,) of target (N,) int64 given hidden (N, C), in float32 or wider."""
        return self.output.nll(hidden, target)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return log-probabilities (B, T, V) of the token after each prefix of tokens (B, T)."""
        return self.output(self.hidden_states(tokens))

    def start(self) -> DecoderState:
        """Return the state before the first token."""
        no_states: list[Any] = [None] * len(self.decoder)
        return DecoderState(0, no_states, source_caches=no_states)

    def step(self, tokens: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        """Return log-probabilities (B, n, V) after n new tokens (B, n), and the next state."""
        x = self.dropout(embed_tokens(self.embedding, tokens, state.position))
        x, state = step_blocks(self.decoder, x, state)
        return self.output(self.decoder_norm(x)), state


class LinearLogSoftmax(nn.Module):
    """Computes log p(w | h), the log-softmax of the logits E h."""

    def __init__(self, channels: int, vocab_size: int):
        super().__init__()
        self.weight = nn.Linear(channels, vocab_size, bias=False).weight
        nn.init.normal_(self.weight, std=channels**-0.5)

    def logits(self, hidden: Tensor) -> Tensor:
        """Return E h (..., V) for hidden (..., C), in float32 or wider."""
        return upcast(F.linear(hidden, self.weight))

    def forward(self, hidden: Tensor) -> Tensor:
        """Return log-probabilities (..., V) for hidden (..., C), in float32 or wider."""
        return self.logits(hidden).log_softmax(-1)

    def nll(self, hidden: Tensor, target: Tensor) -> Tensor:
        """Return -log p (N,) of target (N,) int64 given hidden (N, C), in float32 or wider."""
        return F.cross_entropy(self.logits(hidden), target, reduction="none")

    def loss(self, hidden: Tensor, target: Tensor) -> Tensor:
        """Return the sum of -log p of target (N,), in chunks where N is large."""
        return projected_loss(hidden, target, self.weight)
