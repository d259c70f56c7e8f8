"""The encoder-decoder, a Transformer with other mixers (Wu et al. 2019, section 5.1)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import Tensor, nn

from dynconv.layers.attention import KVCache
from dynconv.models.blocks import build_blocks
from dynconv.models.decoder_state import DecoderState, step_blocks
from dynconv.models.embedding import embed_tokens, token_embedding
from dynconv.models.translator import Translator

if TYPE_CHECKING:
    from dynconv.config import Seq2SeqConfig


class Memory(NamedTuple):
    """The encoder's output (B, S, C) and its pad_mask (B, S), True at padding."""

    hidden_states: Tensor
    pad_mask: Tensor | None


class Seq2Seq(Translator):
    """Encodes and decodes with stacks of blocks; positions are sinusoids and have no maximum."""

    def __init__(self, config: Seq2SeqConfig):
        super().__init__()
        self.config = config
        # A seed gives the same weights only if they are drawn in the same order, the blocks' first.
        encoder = build_blocks(config, config.encoder, causal=False)
        decoder = build_blocks(config, config.decoder, causal=True, cross=True)
        (S, V), C = config.vocab_sizes, config.channels
        self.target_embedding = token_embedding(V, C)
        shared = config.embeddings == "shared"
        self.source_embedding = self.target_embedding if shared else token_embedding(S, C)
        self.encoder, self.decoder = encoder, decoder
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
        x = self.dropout(embed_tokens(self.source_embedding, source))
        for block in self.encoder:
            x = block(x, pad_mask)
        return Memory(self.encoder_norm(x), pad_mask)

    def hidden_states(self, prefix: Tensor, memory: Memory) -> Tensor:
        x = self.dropout(embed_tokens(self.target_embedding, prefix))
        for block, cache in zip(self.decoder, self._project(memory), strict=True):
            x = block(x, cross_inputs=(cache, memory.pad_mask))
        return self.decoder_norm(x)

    def _project(self, memory: Memory) -> Iterator[KVCache]:
        """Yield each block's keys and values of the source."""
        block: Any  # to type checkers every attribute of a module is a tensor or a module
        for block in self.decoder:
            yield block.cross.project(memory.hidden_states)

    def start(self, memory: Memory) -> DecoderState:
        caches: list[KVCache | None] = [*self._project(memory)]
        return DecoderState(0, [None] * len(self.decoder), caches)

    def step(
        self, tokens: Tensor, memory: Memory, state: DecoderState
    ) -> tuple[Tensor, DecoderState]:
        x = self.dropout(embed_tokens(self.target_embedding, tokens, state.position))
        x, state = step_blocks(self.decoder, x, state, memory.pad_mask)
        return self.output(self.decoder_norm(x)), state
