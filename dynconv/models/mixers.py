"""Registers the mixers that recipes can name.

The schema of recipes and `dynconv.models.build` both read this table. A program can add a mixer
with `register_mixer` before it reads a recipe. Reading one does not need PyTorch, which
`import_layers` loads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from dynconv.errors import UserError, name_hint, quoted

if TYPE_CHECKING:
    from torch import nn

    from dynconv.config import LanguageModelConfig, Seq2SeqConfig

SizeKey = Literal["kernel_size", "reach", "window"]
SIZE_KEYS: tuple[SizeKey, ...] = ("kernel_size", "reach", "window")
"""the entries of a stack that give the size of a kernel or a window"""

PROJECTED_OPTIONS = ("glu", "weight_dropout", "input_dropout")
"""the options of every `ProjectedMixer`"""


class Mixer(NamedTuple):
    """A kind of mixer; see `register_mixer`."""

    build: Callable[..., nn.Module]
    size_key: SizeKey | None
    options: tuple[str, ...]
    """the entries of the model that it takes"""


MIXERS: dict[str, Mixer] = {}
"""all registered mixers, keyed by their names in recipes"""


def register_mixer(
    name: str,
    *,
    size_key: SizeKey | None = None,
    options: Iterable[str] = (),
) -> Callable[[Callable], Callable]:
    """Return a decorator that registers a function as the builder of a mixer.

    build(channels, size, causal, **options) is called once per layer. It returns a module that maps
    x (B, T, C) and an optional padding mask (B, T) to (B, T, C). If `causal` is true, the module
    also has a method `step(x, state)`, as described in `dynconv.layers`.

    name      the mixer's name in recipes
    size_key  the entry of the stack that gives the layer its size, or None. A kernel_size or
              reach is required; a window may be null. Kernel sizes and windows are odd.
    options   entries of the model that `build` takes as keyword arguments: fields of
              `MixerModelConfig`. A recipe that sets an entry which none of its mixers takes is
              refused.

    Raises ValueError if the name is taken, or there is no such size_key, and TypeError if the
    options are one string.
    """
    if isinstance(options, str):
        raise TypeError(f"mixer {name}: options {quoted(options)} must be a list of names")
    if size_key not in (None, *SIZE_KEYS):
        hint = name_hint(str(size_key), SIZE_KEYS, "there are")
        raise ValueError(f"mixer {name}: size_key {quoted(size_key)} is not known; {hint}")
    if name in MIXERS:
        raise ValueError(f"mixer {name} is already registered")

    def register(build: Callable) -> Callable:
        MIXERS[name] = Mixer(build, size_key, tuple(options))
        return build

    return register


def require_mixer(name: str) -> Mixer:
    """Return the mixer registered under a name. Raises ValueError for an unknown one."""
    if name not in MIXERS:
        raise ValueError(
            f"mixer {quoted(name)} is not known; {name_hint(name, MIXERS, 'there are')}"
        )
    return MIXERS[name]


def build_mixer(
    config: Seq2SeqConfig | LanguageModelConfig, name: str, size: int | None, *, causal: bool
) -> nn.Module:
    """Build one layer's mixer; `size` is its kernel_size, reach or window.

    Raises UserError for settings that the layer refuses with ValueError.
    """
    mixer = require_mixer(name)
    options = {option: getattr(config, option) for option in mixer.options}
    try:
        return mixer.build(config.channels, size, causal, **options)
    except ValueError as error:
        raise UserError(f"mixer {name}: {error}") from error


def import_layers() -> ModuleType:
    """Import the layers, and with them PyTorch, when the first mixer is built."""
    from dynconv import layers

    return layers


@register_mixer("attention", size_key="window", options=["heads", "attention_dropout"])
def build_attention(
    channels: int, window: int | None, causal: bool, heads: int, attention_dropout: float
) -> nn.Module:
    layers = import_layers()
    return layers.SelfAttention(channels, heads, window, causal=causal, dropout=attention_dropout)


@register_mixer("dense", size_key="kernel_size")
def build_dense(channels: int, kernel_size: int, causal: bool) -> nn.Module:
    return import_layers().DenseConv(channels, kernel_size, causal=causal)


@register_mixer("depthwise", size_key="kernel_size", options=PROJECTED_OPTIONS)
def build_depthwise(channels: int, kernel_size: int, causal: bool, **options: Any) -> nn.Module:
    return import_layers().DepthwiseConv(channels, kernel_size, causal=causal, **options)


@register_mixer("light", size_key="kernel_size", options=["heads", "normalize", *PROJECTED_OPTIONS])
def build_light(
    channels: int, kernel_size: int, causal: bool, heads: int, **options: Any
) -> nn.Module:
    return import_layers().LightConv(channels, heads, kernel_size, causal=causal, **options)


@register_mixer(
    "dynamic", size_key="kernel_size", options=["heads", "normalize", *PROJECTED_OPTIONS]
)
def build_dynamic(
    channels: int, kernel_size: int, causal: bool, heads: int, **options: Any
) -> nn.Module:
    return import_layers().DynamicConv(channels, heads, kernel_size, causal=causal, **options)


@register_mixer(
    "talk", size_key="reach", options=["heads", "divide_by_max_length", *PROJECTED_OPTIONS]
)
def build_talk(channels: int, reach: int, causal: bool, heads: int, **options: Any) -> nn.Module:
    reaches = {"max_left": reach, "max_right": 0 if causal else reach}
    return import_layers().TaLKConv(channels, heads, **reaches, **options)


@register_mixer("average", options=["ffn"])
def build_average(channels: int, size: None, causal: bool, ffn: int) -> nn.Module:
    return import_layers().AverageAttention(channels, ffn, causal=causal)


@register_mixer("ssm", options=["state_size"])
def build_ssm(channels: int, size: None, causal: bool, state_size: int) -> nn.Module:
    return import_layers().S4D(channels, state_size, causal=causal)


@register_mixer("retention", options=["heads"])
def build_retention(channels: int, size: None, causal: bool, heads: int) -> nn.Module:
    return import_layers().Retention(channels, heads, causal=causal)


@register_mixer("selective", options=["state_size"])
def build_selective(channels: int, size: None, causal: bool, state_size: int) -> nn.Module:
    return import_layers().SelectiveSSM(channels, state_size, causal=causal)
