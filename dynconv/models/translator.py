"""The base classes of the models that translate."""

from abc import ABC, abstractmethod
from typing import Any

from torch import Tensor, nn

from dynconv.models.decoder_state import DecoderState


class Translator(nn.Module, ABC):
    """Maps tokens of source (B, S) and prefix (B, T) to logits (B, T, V).

    The prefix is what the decoder reads: <eos>, then the target.

    `encode` reads the source once. Given what it returns, the memory, `hidden_states` decodes all
    positions of a prefix at once, and `start` and `step` decode some at a time. The memory is a
    NamedTuple of tensors with one row per sentence, or None in place of a tensor.
    """

    max_positions: int | None = None
    """maximum tokens of a source or a target, <eos> included; None: no limit"""
    output: nn.Linear
    """the layer that maps hidden states to logits"""

    @abstractmethod
    def encode(self, source: Tensor, pad_mask: Tensor | None = None) -> Any:
        """Encode source (B, S) int64; pad_mask (B, S) bool is True at padding."""

    @abstractmethod
    def hidden_states(self, prefix: Tensor, memory: Any) -> Tensor:
        """Return hidden states (B, T, C) after each token of prefix (B, T), all at once."""

    @abstractmethod
    def start(self, memory: Any) -> DecoderState:
        """Return the state before the first target position."""

    @abstractmethod
    def step(self, tokens: Tensor, memory: Any, state: DecoderState) -> tuple[Tensor, DecoderState]:
        """Return logits (N, n, V) after n new tokens (N, n), and the next state.

        N is B, or B x beam, where the hypotheses of a sentence are consecutive rows.
        """

    def forward(
        self, source: Tensor, prefix: Tensor, source_pad_mask: Tensor | None = None
    ) -> Tensor:
        """Return logits (B, T, V) of the token that follows each token of `prefix`."""
        return self.output(self.hidden_states(prefix, self.encode(source, source_pad_mask)))


class AttentiveTranslator(Translator):
    """A translator that can tell which source tokens it attends to.

    The configuration of each such model states `shows_attention`.
    """

    @abstractmethod
    def attention(self, prefix: Tensor, memory: Any) -> Tensor:
        """Return attention (B, T, S) of prefix (B, T) to the source."""
