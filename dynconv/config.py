"""The schema of a recipe: frozen dataclasses that a recipe fills."""

from dataclasses import dataclass
from typing import Literal

Mixer = Literal["attention", "dense", "depthwise", "light", "dynamic", "talk", "average"]


@dataclass(frozen=True)
class StackConfig:
    """The mixers of the encoder or the decoder, bottom to top."""

    __pydantic_config__ = {"extra": "forbid"}

    layers: int = 6
    mixer: Mixer | tuple[Mixer, ...] = "dynamic"
    """one for all layers, or one a layer"""
    kernel: int | None | tuple[int | None, ...] = None
    """width K of a convolution; TaLK's reach; attention's window (null: full)"""

    def __post_init__(self) -> None:
        for name in ("mixer", "kernel"):
            value = getattr(self, name)
            if isinstance(value, tuple) and len(value) != self.layers:
                raise ValueError(f"{name} lists {len(value)} entries for {self.layers} layers")
        for mixer, kernel in self.each_layer():
            if kernel is None and mixer not in ("attention", "average"):
                raise ValueError(f"mixer {mixer} needs a kernel: give its width")
            if kernel is not None and (kernel < 1 or mixer != "talk" and kernel % 2 == 0):
                raise ValueError(f"kernel {kernel} of mixer {mixer} must be odd and positive")

    def each_layer(self) -> list[tuple[Mixer, int | None]]:
        """(mixer, kernel) of every layer, bottom to top."""
        mixers = self.mixer if isinstance(self.mixer, tuple) else (self.mixer,) * self.layers
        kernels = self.kernel if isinstance(self.kernel, tuple) else (self.kernel,) * self.layers
        return list(zip(mixers, kernels, strict=True))


@dataclass(frozen=True)
class ModelConfig:
    """The encoder-decoder of Wu et al. 2019, section 5.1."""

    __pydantic_config__ = {"extra": "forbid"}

    vocab_size: int = 32768
    """types of the joint vocabulary, the special ones included"""
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

    def __post_init__(self) -> None:
        if self.heads < 1 or self.channels % self.heads:
            raise ValueError(f"{self.heads} heads do not divide {self.channels} channels")
