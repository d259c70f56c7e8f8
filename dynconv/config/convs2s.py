"""The convolutional encoder-decoder of Gehring et al. 2017."""

from dataclasses import dataclass
from typing import Literal

from dynconv.config.checks import each_side, require_positive, require_shares


@dataclass(frozen=True)
class ConvStackConfig:
    """The blocks of the encoder or the decoder, bottom to top."""

    __pydantic_config__ = {"extra": "forbid"}

    layers: int = 20
    channels: int | tuple[int, ...] = 512
    """hidden units, of all layers or of each"""
    kernel: int | tuple[int, ...] = 3
    """width of the convolution, of all layers or of each"""
    residual: int | tuple[int, ...] = 1
    """how many layers before, of all layers or of each, the residual connection starts: 1 is the
    layer's own input, as in the paper; 0 is none"""

    def __post_init__(self) -> None:
        require_positive(self, "layers")
        for name in ("channels", "kernel", "residual"):
            value = getattr(self, name)
            if isinstance(value, tuple) and len(value) != self.layers:
                raise ValueError(f"{name} lists {len(value)} entries for {self.layers} layers")
        for depth, (channels, kernel, residual) in enumerate(self.each_layer(), 1):
            if channels < 1 or kernel < 1:
                raise ValueError(f"channels {channels} and kernel {kernel} must be at least 1")
            if not 0 <= residual <= depth:
                raise ValueError(f"residual {residual} of layer {depth} must be 0 to {depth}")

    def each_layer(self) -> list[tuple[int, int, int]]:
        """(channels, kernel, residual) of every layer, bottom to top."""
        entries = (self.channels, self.kernel, self.residual)
        lists = (v if isinstance(v, tuple) else (v,) * self.layers for v in entries)
        return list(zip(*lists, strict=True))


@dataclass(frozen=True)
class ConvS2SConfig:
    """ConvS2S (Gehring et al. 2017, section 3)."""

    __pydantic_config__ = {"extra": "forbid"}

    architecture: Literal["convs2s"] = "convs2s"
    vocab_size: int | tuple[int, int] = 40000
    """types of the joint vocabulary, the special ones included; or of source and target"""
    embedding: int = 512
    """width of the embeddings"""
    output: int | None = None
    """width of what the decoder gives to the last linear layer; null: as embedding"""
    encoder: ConvStackConfig = ConvStackConfig()
    decoder: ConvStackConfig = ConvStackConfig()
    attention: bool | tuple[bool, ...] = True
    """whether the decoder's layers attend to the source: all alike, or one entry a layer"""
    positions: Literal["both", "source", "target", "none"] = "both"
    """which side learns position embeddings (Table 4)"""
    max_positions: int = 1024
    """most positions of a sentence, <eos> included, where they are learned; more are an error"""
    dropout: float = 0.1
    """on embeddings, the inputs of convolutions and the decoder's output; the share *dropped*"""

    def __post_init__(self) -> None:
        require_shares(self)
        require_positive(self, "embedding", "max_positions")
        if self.output is not None:
            require_positive(self, "output")
        if len(self.attends) != self.decoder.layers:
            raise ValueError(
                f"attention lists {len(self.attends)} entries for {self.decoder.layers} "
                "decoder layers"
            )
        if not any(self.attends):
            raise ValueError("attention is false everywhere: the decoder would not see the source")

    @property
    def vocab_sizes(self) -> tuple[int, int]:
        """Types of the source and of the target."""
        return each_side(self.vocab_size)

    @property
    def attends(self) -> tuple[bool, ...]:
        """Whether each layer of the decoder attends, bottom to top."""
        given = self.attention
        return given if isinstance(given, tuple) else (given,) * self.decoder.layers

    @property
    def output_width(self) -> int:
        """Width of what the decoder gives to the last linear layer."""
        return self.embedding if self.output is None else self.output
