"""The encoder-decoder of Wu et al. 2019, and of TaLK."""

from dataclasses import dataclass
from typing import Literal

from dynconv.config.checks import each_side, require_shares
from dynconv.config.stack import Normalization, StackConfig


@dataclass(frozen=True)
class ModelConfig:
    """The encoder-decoder of Wu et al. 2019, section 5.1."""

    __pydantic_config__ = {"extra": "forbid"}

    architecture: Literal["encoder-decoder"] = "encoder-decoder"
    vocab_size: int | tuple[int, int] = 32768
    """types of the joint vocabulary, the special ones included; or of source and target"""
    channels: int = 1024
    """d, the width of every layer"""
    ffn: int = 4096
    """d_ff, the width inside the feed-forward module"""
    heads: int = 16
    """H, of every mixer and of source-target attention; must divide channels"""
    encoder: StackConfig = StackConfig(7, "dynamic", (3, 7, 15, 31, 31, 31, 31))
    decoder: StackConfig = StackConfig(6, "dynamic", (3, 7, 15, 31, 31, 31))
    glu: bool = True
    """gate the input projection of depthwise, light, dynamic and talk; the others have none"""
    normalize: Normalization = "softmax"
    """of the kernels of light and dynamic; talk's sums are divided by their reach unless `none`"""
    norm: Literal["pre", "post"] = "post"
    embeddings: Literal["shared", "tied", "separate"] = "shared"
    """one matrix for all three places; one for the decoder's two; or three"""
    activation: Literal["relu", "swish"] = "relu"
    dropout: float = 0.1
    attention_dropout: float = 0.0
    weight_dropout: float = 0.0
    """DropConnect on normalised kernel weights; dropout on TaLK's offsets"""
    input_dropout: float = 0.0
    """before a convolution's input projection"""

    @property
    def vocab_sizes(self) -> tuple[int, int]:
        """Types of source and target."""
        return each_side(self.vocab_size)

    def __post_init__(self) -> None:
        require_shares(self)
        if self.heads < 1 or self.channels % self.heads:
            raise ValueError(f"{self.heads} heads do not divide {self.channels} channels")
        if self.embeddings == "shared" and isinstance(self.vocab_size, tuple):
            raise ValueError("embeddings shared need one vocab_size: give one, or embeddings: tied")
