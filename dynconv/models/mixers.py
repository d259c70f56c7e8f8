"""The mixers that a stack can be built from, by name: the one place that knows them all.

The schema of a recipe takes its names and rules from this table, and `dynconv.models.build` the
layers. A program adds a mixer of its own with `register_mixer` before it reads a recipe.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Literal, NamedTuple

from torch import nn

from dynconv import layers
from dynconv.errors import nearest

if TYPE_CHECKING:
    from dynconv.config import LanguageModelConfig, ModelConfig

Size = Literal["width", "reach", "window"]
SIZES: tuple[Size, ...] = ("width", "reach", "window")
"""the entries of a stack that size a mixer: a convolution's kernel, TaLK's windows, attention's"""

GATED = ("glu", "weight_dropout", "input_dropout")
"""entries of a model that every convolution between two projections reads"""


class Mixer(NamedTuple):
    """A kind of mixer, as `register_mixer` describes it."""

    build: Callable[[ModelConfig | LanguageModelConfig, int | None, bool], nn.Module]
    size: Size | None
    options: frozenset[str]


MIXERS: dict[str, Mixer] = {}


def register_mixer(
    name: str, *, size: Size | None = None, options: Iterable[str] = ()
) -> Callable[[Callable], Callable]:
    """Decorate a function that builds a mixer, so that recipes can name it.

    The function is called as build(config, size, causal) once per layer. It returns a module that
    maps x (B, T, C) and an optional padding mask (B, T) to (B, T, C). A mixer of a decoder, where
    `causal` is true, also has `step(x, state)` as the modules of `dynconv.layers` do.

    name     what a recipe writes as `mixer`
    size     the entry of the stack that gives the layer its size, or None. A width or reach is
             required; a window may be null. Widths and windows are odd.
    options  the entries of the model that it reads of glu, normalize, weight_dropout,
             input_dropout, attention_dropout and heads. A recipe that sets one which none of its
             mixers reads is refused.

    Raises ValueError when the name is taken.
    """
    if name in MIXERS:
        raise ValueError(f"mixer {name} is already registered")

    def register(build: Callable) -> Callable:
        MIXERS[name] = Mixer(build, size, frozenset(options))
        return build

    return register


def find_mixer(name: str) -> Mixer:
    """Return the mixer registered under a name. Raises ValueError for an unknown one."""
    if name not in MIXERS:
        raise ValueError(f"mixer {name!r} is not known; {nearest(name, MIXERS, 'there are')}")
    return MIXERS[name]


def build_mixer(
    config: ModelConfig | LanguageModelConfig, name: str, size: int | None, *, causal: bool
) -> nn.Module:
    """Build one layer's mixer; `size` is its width, reach or window."""
    return find_mixer(name).build(config, size, causal)


def gated_arguments(config: ModelConfig | LanguageModelConfig) -> dict[str, float]:
    """Return the arguments that every convolution between two projections takes."""
    return {name: getattr(config, name) for name in GATED}


@register_mixer("attention", size="window", options=["heads", "attention_dropout"])
def build_attention(config, window, causal):
    dropout = config.attention_dropout
    return layers.SelfAttention(
        config.channels, config.heads, window, causal=causal, dropout=dropout
    )


@register_mixer("dense", size="width")
def build_dense(config, width, causal):
    return layers.DenseConv(config.channels, width, causal=causal)


@register_mixer("depthwise", size="width", options=GATED)
def build_depthwise(config, width, causal):
    return layers.DepthwiseConv(config.channels, width, causal=causal, **gated_arguments(config))


@register_mixer("light", size="width", options=["heads", "normalize", *GATED])
def build_light(config, width, causal):
    return layers.LightConv(
        config.channels,
        config.heads,
        width,
        causal=causal,
        normalize=config.normalize,
        **gated_arguments(config),
    )


@register_mixer("dynamic", size="width", options=["heads", "normalize", *GATED])
def build_dynamic(config, width, causal):
    return layers.DynamicConv(
        config.channels,
        config.heads,
        width,
        causal=causal,
        normalize=config.normalize,
        **gated_arguments(config),
    )


@register_mixer("talk", size="reach", options=["heads", "normalize", *GATED])
def build_talk(config, reach, causal):
    return layers.TaLKConv(
        config.channels,
        config.heads,
        reach,
        0 if causal else reach,
        normalize=config.normalize != "none",
        **gated_arguments(config),
    )


@register_mixer("average")
def build_average(config, size, causal):
    return layers.AverageAttention(config.channels, config.ffn, causal=causal)
