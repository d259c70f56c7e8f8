"""Decoder-only language models (Wu et al. 2019, section 5.1; Baevski and Auli 2019)."""

from dataclasses import dataclass
from typing import Literal

from dynconv.config.stack import StackConfig


@dataclass(frozen=True)
class LanguageModelConfig:
    """A stack of any mixers, with adaptive input embeddings and adaptive softmax."""

    __pydantic_config__ = {"extra": "forbid"}

    architecture: Literal["language-model"] = "language-model"
    vocab_size: int = 267744
    """types, the special ones included, in order of their frequency"""
    channels: int = 1024
    """d, the width of every layer"""
    ffn: int = 4096
    heads: int = 8
    """H, of every mixer; must divide channels"""
    decoder: StackConfig = StackConfig(17, "talk", (3, 7, 15, 31) + (63,) * 13)
    glu: bool = True
    norm: Literal["pre", "post"] = "pre"
    final_norm: bool = False
    """normalise the last residual sum; the papers' models do not"""
    cutoffs: tuple[int, ...] = ()
    """first type of the second, third ... band of the vocabulary; none: one band, plain softmax"""
    bands: tuple[int, ...] | None = None
    """width of each band's embeddings; null: channels / factor^band"""
    factor: int = 4
    embeddings: Literal["tied", "separate"] = "tied"
    """whether the softmax has the embeddings' matrices and projections"""
    activation: Literal["relu", "swish"] = "relu"
    dropout: float = 0.1
    attention_dropout: float = 0.0
    activation_dropout: float = 0.0
    """inside the feed-forward module"""
    weight_dropout: float = 0.0
    """DropConnect on normalised kernel weights; dropout on TaLK's offsets"""
    input_dropout: float = 0.0
    """before a convolution's input projection"""
    softmax_dropout: float = 0.0
    """on the projected hidden states of the adaptive softmax's tail bands"""

    def __post_init__(self) -> None:
        if self.heads < 1 or self.channels % self.heads:
            raise ValueError(f"{self.heads} heads do not divide {self.channels} channels")
        edges = (0, *self.cutoffs, self.vocab_size)
        if any(a >= b for a, b in zip(edges, edges[1:], strict=False)):
            raise ValueError(
                f"cutoffs {self.cutoffs} must grow, within vocab_size {self.vocab_size}"
            )
        if self.bands is not None and len(self.bands) != len(self.cutoffs) + 1:
            raise ValueError(f"bands lists {len(self.bands)} widths for {len(edges) - 1} bands")
        if min(self.widths) < 1:
            raise ValueError(f"bands of width {self.widths}: each must be at least 1")

    @property
    def widths(self) -> tuple[int, ...]:
        """Width of each band's embeddings, the most frequent types first."""
        if self.bands is not None:
            return self.bands
        return tuple(self.channels // self.factor**i for i in range(len(self.cutoffs) + 1))
