"""The section `model` of a recipe: what is built, layer by layer.

Every class checks the ranges of its entries, even if a program constructs it directly.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import fields, replace
from itertools import pairwise
from typing import Any, ClassVar, Literal, Self

from dynconv.choices import Activation, Normalization
from dynconv.config.stack import ConvStackConfig, StackConfig, per_layer
from dynconv.errors import name_hint, quoted
from dynconv.models.mixers import require_mixer
from dynconv.schema import Dimension, Flag, Probability, VocabSize, checked_dataclass
from dynconv.text.vocabulary import DEFAULT_SIZE, per_side
from dynconv.value_checks import check_heads
from dynconv.yaml12 import as_override

VocabSizes: Any = VocabSize | tuple[VocabSize, VocabSize]
"""types of the joint vocabulary, the special ones included; or of source and target"""


class ModelConfigBase(ABC):
    """What every class of the section `model` tells the rest of the recipe about itself."""

    vocab_size: Any
    translates: ClassVar[bool] = True
    """whether the model turns a source into a target; a language model continues a text"""
    recipe_defaults: ClassVar[dict[str, Any]] = {}
    """what a recipe of this model says where it states nothing else"""
    shows_attention: ClassVar[bool] = False
    """whether the model is an AttentiveTranslator, which tells what each output attends to"""

    @property
    def vocab_sizes(self) -> tuple[int, int]:
        """The number of types of source and target."""
        return per_side(self.vocab_size)

    @property
    def position_limit(self) -> int | None:
        """The model's `max_positions`; None: no limit, as sinusoids exist for every position."""
        return None

    @abstractmethod
    def find_unused(self) -> dict[str, str]:
        """Return the entries that have no effect in this model, each with the reason."""

    @abstractmethod
    def narrowed(self, channels: int, types: int) -> Self:
        """Return a model with the same layers, but about so many channels and so many types."""

    def vocab_size_of(self, types: int) -> Any:
        """Return this number as `vocab_size`, once or for each side as it is here."""
        return types if isinstance(self.vocab_size, int) else (types, types)


@checked_dataclass
class MixerModelConfig(ModelConfigBase):
    """The entries that the encoder-decoder and the language model share.

    A mixer takes those that `dynconv.models.mixers` registers for it.
    """

    architecture: str = ""
    vocab_size: VocabSizes = DEFAULT_SIZE
    channels: Dimension = 1024
    """width of every layer (d)"""
    ffn: Dimension = 4096
    """width inside the feed-forward module (d_ff)"""
    heads: Dimension = 16
    """H, of every mixer and of source-target attention; must divide channels"""
    state_size: Dimension = 16
    """states of each channel in a state-space model"""
    glu: Flag = True
    """whether to gate the input projection"""
    normalize: Normalization = "softmax"
    """the normalisation of a kernel"""
    divide_by_max_length: Flag = True
    """whether TaLK divides a sum over a window by the length of the longest window: 2 reach + 1, or
    reach + 1 in a decoder"""
    norm: Literal["pre", "post"] = "post"
    activation: Activation = "relu"
    dropout: Probability = 0.1
    attention_dropout: Probability = 0.0
    weight_dropout: Probability = 0.0
    """DropConnect on normalised kernel weights; in TaLK, which has none, dropout on the offsets"""
    input_dropout: Probability = 0.0
    """dropout before the input projection"""

    def __post_init__(self) -> None:
        for mixer in self.mixers:
            for option in set(require_mixer(mixer).options).difference(OPTIONS):
                hint = name_hint(option, OPTIONS, "there are")
                raise ValueError(f"mixer {mixer}: option {quoted(option)} is not known; {hint}")
        if "heads" in self.used_options:
            check_heads(self.heads, self.channels)

    @property
    @abstractmethod
    def stacks(self) -> tuple[StackConfig, ...]:
        """The model's stacks, the encoder's first."""

    @property
    def mixers(self) -> list[str]:
        """The names of the model's mixers, each once, in alphabetical order."""
        return sorted({mixer for stack in self.stacks for mixer, _ in stack.each_layer()})

    @property
    def used_options(self) -> set[str]:
        """The options that blocks or mixers read."""
        blocks = {"ffn", "norm", "activation", "dropout"}
        return blocks.union(*(require_mixer(mixer).options for mixer in self.mixers))

    def find_unused(self) -> dict[str, str]:
        """Return the options that no mixer reads, with the reason."""
        unused = [name for name in OPTIONS if name not in self.used_options]
        return dict.fromkeys(unused, "no mixer of this model reads it")

    def narrowed(self, channels: int, types: int, **others: Any) -> Self:
        """Return a narrow model, in which `others` are replaced, too."""
        return replace(
            self,
            vocab_size=self.vocab_size_of(types),
            channels=channels,
            ffn=channels,
            heads=channels if self.heads == self.channels else math.gcd(self.heads, 4),
            **others,
        )


OPTIONS = tuple(
    field.name
    for field in fields(MixerModelConfig)
    if field.name not in ("architecture", "vocab_size", "channels")
)
"""the entries that a mixer can take as options"""


@checked_dataclass
class Seq2SeqConfig(MixerModelConfig):
    """The encoder-decoder of Wu et al. 2019, section 5.1, and of TaLK."""

    architecture: Literal["encoder-decoder"] = "encoder-decoder"
    encoder: StackConfig = StackConfig(7, "dynamic", (3, 7, 15, 31, 31, 31, 31))
    decoder: StackConfig = StackConfig(6, "dynamic", (3, 7, 15, 31, 31, 31))
    embeddings: Literal["shared", "tied", "separate"] = "shared"
    """the sharing of matrices: one for all three places; one for the decoder's two; or three"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.embeddings == "shared" and isinstance(self.vocab_size, tuple):
            raise ValueError("embeddings shared need one vocab_size: give one, or embeddings: tied")

    @property
    def stacks(self) -> tuple[StackConfig, ...]:
        return self.encoder, self.decoder

    @property
    def used_options(self) -> set[str]:
        """The options that blocks, mixers or source-target attention read."""
        return {"heads", "attention_dropout", *super().used_options}


@checked_dataclass
class ConvS2SConfig(ModelConfigBase):
    """The model of Gehring et al. 2017, section 3, a convolutional encoder-decoder."""

    shows_attention = True
    architecture: Literal["convs2s"] = "convs2s"
    vocab_size: VocabSizes = 40000
    embedding: Dimension = 512
    """width of the embeddings"""
    output: Dimension | None = None
    """width of the input to the last linear layer; null: the width of the embeddings"""
    encoder: ConvStackConfig = ConvStackConfig()
    decoder: ConvStackConfig = ConvStackConfig()
    attention: Flag | tuple[Flag, ...] = True
    """whether the decoder's layers attend to the source: all alike, or one entry per layer"""
    positions: Literal["both", "source", "target", "none"] = "both"
    """the sides that learn position embeddings (Table 4)"""
    max_positions: Dimension = 1024
    """maximum positions of a sentence, <eos> included, where they are learned"""
    dropout: Probability = 0.1
    """dropout on embeddings, the inputs of convolutions and the decoder's output"""

    def __post_init__(self) -> None:
        if not any(self.attends):
            raise ValueError("attention is false everywhere: the decoder would not see the source")

    @property
    def attends(self) -> tuple[bool, ...]:
        """Whether each layer of the decoder attends, bottom to top."""
        return per_layer("attention", self.attention, self.decoder.layers)

    @property
    def position_limit(self) -> int | None:
        """The entry `max_positions`, or None, without a limit, where no positions are learned."""
        return None if self.positions == "none" else self.max_positions

    @property
    def output_width(self) -> int:
        """The width of the input to the last linear layer."""
        return self.embedding if self.output is None else self.output

    def find_unused(self) -> dict[str, str]:
        return {"max_positions": "model.positions is none"} if self.positions == "none" else {}

    def narrowed(self, channels: int, types: int) -> Self:
        return replace(
            self,
            vocab_size=self.vocab_size_of(types),
            embedding=channels,
            output=None,
            encoder=self.encoder.scaled(channels, self.embedding),
            decoder=self.decoder.scaled(channels, self.embedding),
            max_positions=1024,
        )


@checked_dataclass
class LanguageModelConfig(MixerModelConfig):
    """A decoder-only stack of mixers, with adaptive input embeddings and softmax.

    Wu et al. 2019, section 5.3; Baevski and Auli 2019.
    """

    translates = False
    recipe_defaults = {"train": {"label_smoothing": 0.0}, "metric": "perplexity"}
    architecture: Literal["language-model"] = "language-model"
    vocab_size: VocabSize = 267736
    """types, the special ones included, in order of their frequency"""
    heads: Dimension = 8
    decoder: StackConfig = StackConfig(17, "talk", reach=(3, 7, 15, 31) + (63,) * 13)
    norm: Literal["pre", "post"] = "pre"
    final_norm: Flag = False
    """whether to normalise the last residual sum; the papers' models do not"""
    cutoffs: tuple[VocabSize, ...] = ()
    """first type of the second, third ... band of the vocabulary; none: one band, plain softmax"""
    band_widths: tuple[Dimension, ...] | None = None
    """width of each band's embeddings, the first equal to channels; null: channels /
    div_value^band"""
    div_value: Dimension = 4
    """each band's embeddings are this many times narrower than the previous band's"""
    embeddings: Literal["tied", "separate"] = "tied"
    """whether the softmax shares the embeddings' matrices and projections"""
    activation_dropout: Probability = 0.0
    """dropout inside the feed-forward module"""
    softmax_dropout: Probability = 0.0
    """dropout on the projected hidden states of the adaptive softmax's tail bands"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if any(a >= b for a, b in pairwise(self.band_edges)):
            raise ValueError(
                f"cutoffs {as_override(self.cutoffs)} must grow, within vocab_size "
                f"{self.vocab_size}"
            )
        bands = len(self.cutoffs) + 1
        if len(self.widths) != bands:
            raise ValueError(f"band_widths lists {len(self.widths)} widths for {bands} bands")
        if self.widths[0] != self.channels:
            raise ValueError(
                f"band_widths begins with {self.widths[0]}: the most frequent types have width "
                f"channels, {self.channels}"
            )
        if min(self.widths) < 1:
            raise ValueError(f"bands of width {as_override(self.widths)}: each must be at least 1")

    @property
    def stacks(self) -> tuple[StackConfig, ...]:
        return (self.decoder,)

    def find_unused(self) -> dict[str, str]:
        unused = super().find_unused()
        if not self.cutoffs:
            unused |= dict.fromkeys(
                ("band_widths", "softmax_dropout"), "it is for models with cutoffs"
            )
        if self.band_widths is not None or not self.cutoffs:
            unused["div_value"] = "it is for models with cutoffs and without band_widths"
        return unused

    def narrowed(self, channels: int, types: int, **others: Any) -> Self:
        bands = len(self.cutoffs) + 1
        cutoffs = tuple(types * i // bands for i in range(1, bands))
        widths = self.band_widths and tuple(channels // 2**i for i in range(bands))
        of_bands = {"cutoffs": cutoffs, "band_widths": widths, "div_value": 2}
        return super().narrowed(channels, types, **of_bands, **others)

    @property
    def band_edges(self) -> tuple[int, ...]:
        """0, the first type of the second, third ... band, and vocab_size."""
        return 0, *self.cutoffs, self.vocab_size

    @property
    def widths(self) -> tuple[int, ...]:
        """The width of each band's embeddings, the most frequent types first."""
        if self.cutoffs and self.band_widths is not None:
            return self.band_widths
        return tuple(self.channels // self.div_value**i for i in range(len(self.cutoffs) + 1))


AnyModelConfig = Seq2SeqConfig | ConvS2SConfig | LanguageModelConfig

MODEL_CONFIGS = {
    cls.architecture: cls for cls in (Seq2SeqConfig, ConvS2SConfig, LanguageModelConfig)
}
"""the classes of the section `model` by its entry `architecture`"""
