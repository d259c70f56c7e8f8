"""Decoder-only language models (Wu et al. 2019, section 5.3; Baevski and Auli 2019)."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from dynconv.config.checks import require_positive, require_shares
from dynconv.config.stack import Normalization, StackConfig


@dataclass(frozen=True)
class LanguageModelConfig:
    """A stack of any mixers, with adaptive input embeddings and adaptive softmax."""

    __pydantic_config__ = {"extra": "forbid"}

    architecture: Literal["language-model"] = "language-model"
    vocab_size: int = 267736
    """types, the special ones included, in order of their frequency"""
    channels: int = 1024
    """d, the width of every layer"""
    ffn: int = 4096
    heads: int = 8
    """H, of every mixer; must divide channels"""
    decoder: StackConfig = StackConfig(17, "talk", (3, 7, 15, 31) + (63,) * 13)
    glu: bool = True
    normalize: Normalization = "softmax"
    """of the kernels of light and dynamic; talk's sums are divided by their reach unless `none`"""
    norm: Literal["pre", "post"] = "pre"
    final_norm: bool = False
    """normalise the last residual sum; the papers' models do not"""
    cutoffs: tuple[int, ...] = ()
    """first type of the second, third ... band of the vocabulary; none: one band, plain softmax"""
    bands: tuple[int, ...] | None = None
    """width of each band's embeddings, the first's being channels; null: channels / factor^band"""
    factor: int = 4
    embeddings: Literal["tied", "separate"] = "tied"
    """whether the softmax shares the embeddings' matrices and projections"""
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
        require_shares(self)
        if self.heads < 1 or self.channels % self.heads:
            raise ValueError(f"{self.heads} heads do not divide {self.channels} channels")
        require_positive(self, "factor")
        if any(a >= b for a, b in pairwise(self.edges)):
            raise ValueError(
                f"cutoffs {self.cutoffs} must grow, within vocab_size {self.vocab_size}"
            )
        if self.bands is not None and len(self.bands) != len(self.cutoffs) + 1:
            raise ValueError(
                f"bands lists {len(self.bands)} widths for {len(self.cutoffs) + 1} bands"
            )
        if self.widths[0] != self.channels:
            raise ValueError(
                f"bands begins with width {self.widths[0]}: the most frequent types have that of "
                f"channels, {self.channels}"
            )
        if min(self.widths) < 1:
            raise ValueError(f"bands of width {self.widths}: each must be at least 1")
        if self.softmax_dropout and not self.cutoffs:
            raise ValueError(
                f"softmax_dropout {self.softmax_dropout} acts on the bands behind cutoffs: "
                "give cutoffs, or softmax_dropout: 0"
            )

    @property
    def edges(self) -> tuple[int, ...]:
        """0, the first type of the second, third ... band, and vocab_size."""
        return 0, *self.cutoffs, self.vocab_size

    @property
    def widths(self) -> tuple[int, ...]:
        """Width of each band's embeddings, the most frequent types first."""
        if self.bands is not None:
            return self.bands
        return tuple(self.channels // self.factor**i for i in range(len(self.cutoffs) + 1))
