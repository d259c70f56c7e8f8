"""The convolutional encoder-decoder of Gehring et al. 2017."""

from dataclasses import dataclass
from typing import Literal

from dynconv.config.checks import require_positive


@dataclass(frozen=True)
class ConvStackConfig:
    """The blocks of the encoder or the decoder, bottom to top."""

    __pydantic_config__ = {"extra": "forbid"}

    layers: int = 20
    channels: int | tuple[int, ...] = 512
    """hidden units, of all layers or of each"""
    kernel: int | tuple[int, ...] = 3
    """width of the convolution, of all layers or of each"""

    def __post_init__(self) -> None:
        require_positive(self, "layers")
        for name in ("channels", "kernel"):
            value = getattr(self, name)
            if isinstance(value, tuple) and len(value) != self.layers:
                raise ValueError(f"{name} lists {len(value)} entries for {self.layers} layers")
        for channels, kernel in self.each_layer():
            if channels < 1 or kernel < 1:
                raise ValueError(f"channels {channels} and kernel {kernel} must be at least 1")

    def each_layer(self) -> list[tuple[int, int]]:
        """(channels, kernel) of every layer, bottom to top."""
        both = (self.channels, self.kernel)
        lists = (v if isinstance(v, tuple) else (v,) * self.layers for v in both)
        return list(zip(*lists, strict=True))


@dataclass(frozen=True)
class ConvS2SConfig:
    """ConvS2S (Gehring et al. 2017, section 3)."""

    __pydantic_config__ = {"extra": "forbid"}

    architecture: Literal["convs2s"] = "convs2s"
    vocab_size: int | tuple[int, int] = 40000
    """types of the joint vocabulary, the special ones included; or of source and target"""
    embedding: int = 512
    """width of the embeddings, and of what the decoder gives to the last linear layer"""
    encoder: ConvStackConfig = ConvStackConfig()
    decoder: ConvStackConfig = ConvStackConfig()
    attention: bool | tuple[bool, ...] = True
    """whether the decoder's layers attend to the source: all alike, or one entry a layer"""
    positions: Literal["both", "source", "target", "none"] = "both"
    """which side learns position embeddings (Table 4)"""
    max_positions: int = 1024
    """most positions of a sentence, <eos> included; a longer one is an error"""
    dropout: float = 0.1
    """on embeddings, the inputs of convolutions and the decoder's output; the share *dropped*"""

    def __post_init__(self) -> None:
        require_positive(self, "embedding", "max_positions")
        listed = self.attention if isinstance(self.attention, tuple) else (self.attention,)
        if isinstance(self.attention, tuple) and len(listed) != self.decoder.layers:
            raise ValueError(
                f"attention lists {len(listed)} entries for {self.decoder.layers} decoder layers"
            )
        if not any(listed):
            raise ValueError("attention is false everywhere: the decoder would not see the source")
