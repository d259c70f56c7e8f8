"""Which mixer stands in which layer."""

from dataclasses import dataclass
from typing import Literal

from dynconv.config.checks import require_positive

Normalization = Literal[
    "softmax", "none", "sigmoid", "tanh", "l1", "l2", "power2", "abs", "abs_l1", "abs_l2"
]
"""the rows of Table 6 of Wu et al. 2019 (`dynconv.ops.normalize_kernel`)"""
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
        require_positive(self, "layers")
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
