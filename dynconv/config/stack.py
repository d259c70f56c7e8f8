"""The layers of an encoder or a decoder, as the section `model` of a recipe describes them."""

from dataclasses import replace
from typing import Annotated, Any, Self

from pydantic import AfterValidator

from dynconv.models.mixers import SIZE_KEYS, SizeKey, require_mixer
from dynconv.schema import Dimension, NonNegativeInt, checked_dataclass, whole

Layers: Any = whole(1, 1000)
PerLayer: Any = Dimension | None | tuple[Dimension | None, ...]


def validated_mixer(name: str) -> str:
    """Return the name of a mixer. Raises ValueError unless it is registered."""
    require_mixer(name)
    return name


MixerName = Annotated[str, AfterValidator(validated_mixer)]


def per_layer(name: str, value: Any, layers: int) -> tuple:
    """Return an entry as a tuple with one value per layer; a single value stands for all layers."""
    if not isinstance(value, tuple):
        return (value,) * layers
    if len(value) != layers:
        raise ValueError(f"{name} lists {len(value)} entries for {layers} layers")
    return value


def check_size(key: SizeKey, mixer: str, size: int | None) -> None:
    """Raise ValueError if a mixer that takes a size under this key cannot have this one."""
    if size is None:
        if key != "window":
            raise ValueError(f"mixer {mixer} needs a {key}: give one, or one per layer")
    elif key != "reach" and size % 2 == 0:
        raise ValueError(f"{key} {size} of mixer {mixer} must be odd")


@checked_dataclass
class StackConfig:
    """The mixers of the encoder or the decoder, bottom to top.

    A mixer takes one of three sizes: attention a `window`, TaLK a `reach`, a convolution a
    `kernel_size`, the other mixers none. A list has one entry per layer, null where a layer takes
    no such size; a single number is for all layers that take it.
    """

    layers: Layers = 6
    mixer: MixerName | tuple[MixerName, ...] = "dynamic"
    """the mixer of all layers, or one per layer (`dynconv.models.mixers`)"""
    kernel_size: PerLayer = None
    """K, the taps of a convolution's kernel, odd"""
    reach: PerLayer = None
    """the reach of TaLK's windows: how far they may extend to the left, and in an encoder to the
    right"""
    window: PerLayer = None
    """positions that attention sees, its own included: centred in an encoder, the last ones in a
    decoder; odd; null: all of them"""

    def __post_init__(self) -> None:
        mixers = self._mixers()
        taken = {size_key for _, size_key in mixers}
        for key in SIZE_KEYS:
            value = getattr(self, key)
            # A single number skips the layers that take no such size, if there are others.
            skips = not isinstance(value, tuple) and key in taken
            sizes = per_layer(key, value, self.layers)
            for (mixer, size_key), size in zip(mixers, sizes, strict=True):
                if size_key == key:
                    check_size(key, mixer, size)
                elif size is not None and not skips:
                    raise ValueError(
                        f"{key} {size} has no effect: mixer {mixer} takes no {key}; leave it out"
                    )

    def _mixers(self) -> list[tuple[str, SizeKey | None]]:
        """Return each layer's mixer, and the name of the size that it takes."""
        mixers = per_layer("mixer", self.mixer, self.layers)
        return [(mixer, require_mixer(mixer).size_key) for mixer in mixers]

    def each_layer(self) -> list[tuple[str, int | None]]:
        """Return (mixer, size) of every layer, bottom to top: its kernel_size, reach or window."""
        sizes = {name: per_layer(name, getattr(self, name), self.layers) for name in SIZE_KEYS}
        return [
            (mixer, sizes[size_key][i] if size_key else None)
            for i, (mixer, size_key) in enumerate(self._mixers())
        ]


@checked_dataclass
class ConvStackConfig:
    """The blocks of ConvS2S's encoder or decoder, bottom to top."""

    layers: Layers = 20
    channels: Dimension | tuple[Dimension, ...] = 512
    """hidden units, of all layers or of each"""
    kernel_size: Dimension | tuple[Dimension, ...] = 3
    """K, the taps of the convolution's kernel, of all layers or of each"""
    residual: NonNegativeInt | tuple[NonNegativeInt, ...] = 1
    """the distance of each residual connection, of all layers or of each: it starts this many
    layers earlier; 1 is the layer's own input, as in the paper; 0 is none"""

    def __post_init__(self) -> None:
        for depth, (_, _, residual) in enumerate(self.each_layer(), 1):
            if residual > depth:
                raise ValueError(f"residual {residual} of layer {depth} must be 0 to {depth}")

    def each_layer(self) -> list[tuple[int, int, int]]:
        """Return (channels, kernel_size, residual) of every layer, bottom to top."""
        names = ("channels", "kernel_size", "residual")
        lists = (per_layer(name, getattr(self, name), self.layers) for name in names)
        return list(zip(*lists, strict=True))

    def scaled(self, numerator: int, denominator: int) -> Self:
        """Return the stack with every layer's channels multiplied by a fraction, at least 1."""
        scaled = (max(1, own * numerator // denominator) for own, *_ in self.each_layer())
        return replace(self, channels=tuple(scaled))
