"""Decoder-only language models (Wu et al. 2019, section 5.3; Baevski and Auli 2019)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dynconv.layers import AdaptiveEmbedding, AdaptiveSoftmax
from dynconv.layers.adaptive import wide
from dynconv.models.seq2seq import embedding, sinusoids

if TYPE_CHECKING:
    from dynconv.config import LanguageModelConfig


class LanguageState(NamedTuple):
    """Keeps what `step` needs: how many tokens there were, and each layer's mixer state."""

    position: int
    mixers: list[Any]

    def select(self, rows: Tensor) -> LanguageState:
        """Return the state of these rows; a row may appear several times."""
        return LanguageState(self.position, [mixer.select(rows) for mixer in self.mixers])


class LanguageModel(nn.Module):
    """Maps tokens (B, T) to log-probabilities (B, T, V) of the token after each of them.

    With `config.cutoffs`, embeddings and softmax are adaptive; otherwise they are a table and a
    linear layer.
    """

    max_positions: int | None = None
    """most tokens of a text: sinusoids have no limit"""

    def __init__(self, config: LanguageModelConfig, decoder: list):
        super().__init__()
        self.config = config
        V, C, tied = config.vocab_size, config.channels, config.embeddings == "tied"
        if config.cutoffs:
            bands = C, config.edges, config.widths
            self.embedding = AdaptiveEmbedding(*bands)
            self.output = AdaptiveSoftmax(
                *bands, dropout=config.softmax_dropout, tied=self.embedding if tied else None
            )
        else:
            self.embedding = embedding(V, C)
            self.output = nn.Linear(C, V, bias=False)
            nn.init.normal_(self.output.weight, std=C**-0.5)
            if tied:
                self.output.weight = self.embedding.weight
        self.decoder = nn.ModuleList(decoder)
        self.decoder_norm = nn.LayerNorm(C) if config.final_norm else nn.Identity()
        self.dropout = nn.Dropout(config.dropout)

    def embed(self, tokens: Tensor, start: int = 0) -> Tensor:
        """Return sqrt(C) times the token's embedding plus its position's; (B, T) to (B, T, C)."""
        C = self.config.channels
        positions = torch.arange(start, start + tokens.shape[1], device=tokens.device)
        x = self.embedding(tokens) * C**0.5
        return self.dropout(x + sinusoids(positions, C).to(x.dtype))

    def decode(self, tokens: Tensor) -> Tensor:
        """Return hidden states (B, T, C) after each prefix of tokens (B, T), padded at the end."""
        x = self.embed(tokens)
        for block in self.decoder:
            x = block(x)
        return self.decoder_norm(x)

    def log_probabilities(self, hidden: Tensor) -> Tensor:
        """Return those (..., V) of every type after hidden (..., C), in float32 or wider."""
        if isinstance(self.output, AdaptiveSoftmax):
            return self.output(hidden)
        return wide(self.output(hidden)).log_softmax(-1)

    def nats(self, hidden: Tensor, target: Tensor) -> Tensor:
        """Return -log p (N,) of target (N,) int64 given hidden (N, C), in float32 or wider."""
        if isinstance(self.output, AdaptiveSoftmax):
            return self.output.nats(hidden, target)
        return F.cross_entropy(wide(self.output(hidden)), target, reduction="none")

    def forward(self, tokens: Tensor) -> Tensor:
        """Return log-probabilities (B, T, V) of the token after each prefix of tokens (B, T)."""
        return self.log_probabilities(self.decode(tokens))

    def start(self) -> LanguageState:
        """Return the state before the first token."""
        return LanguageState(0, [None] * len(self.decoder))

    def step(self, tokens: Tensor, state: LanguageState) -> tuple[Tensor, LanguageState]:
        """Return log-probabilities (B, n, V) after n new tokens (B, n), and the next state."""
        x = self.embed(tokens, state.position)
        mixers = []
        for block, mixer in zip(self.decoder, state.mixers, strict=True):
            x, mixer = block.step(x, mixer)
            mixers.append(mixer)
        logp = self.log_probabilities(self.decoder_norm(x))
        return logp, LanguageState(state.position + tokens.shape[1], mixers)
