"""The schema of a recipe: frozen dataclasses that a recipe fills."""

import math
from dataclasses import dataclass
from typing import Literal


def require_positive(config: object, *names: str) -> None:
    """Raise unless each of these entries is at least 1."""
    for name in names:
        if getattr(config, name) < 1:
            raise ValueError(f"{name} {getattr(config, name)} must be at least 1")


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


@dataclass(frozen=True)
class DataConfig:
    """The parallel text."""

    __pydantic_config__ = {"extra": "forbid"}

    corpus: str = "libreoffice-de-en"
    """a shipped corpus, a directory with {train,valid,test}.{source,target}, or a prepared one"""
    source: str = "de"
    target: str = "en"
    max_tokens: int = 256
    """training pairs with a side longer than this, or than train.batch_tokens, are left out"""


@dataclass(frozen=True)
class TrainConfig:
    """Adam, its schedule, and when to validate, save and stop."""

    __pydantic_config__ = {"extra": "forbid"}

    updates: int = 30_000
    """optimizer updates in all"""
    batch_tokens: int = 4096
    """most tokens, padding included, on either side of a batch"""
    accumulate: int = 1
    """batches in one update, for each process"""
    lr: float = 5e-4
    """the peak, reached after warm-up"""
    warmup: int = 4000
    """updates of linear growth from lr_start to lr"""
    schedule: Literal["inverse_sqrt", "cosine"] = "inverse_sqrt"
    """after warm-up: lr sqrt(warmup / u), or half a cosine down to lr_end at the last update"""
    lr_start: float = 1e-7
    lr_end: float = 1e-7
    """the cosine's lowest point"""
    betas: tuple[float, float] = (0.9, 0.98)
    eps: float = 1e-8
    weight_decay: float = 0.0
    label_smoothing: float = 0.1
    clip: float | None = None
    """largest norm of the gradient of the mean loss per token; null: no clipping"""
    validate_every: int = 1000
    """updates between checkpoints; each one is validated"""
    patience: int | None = None
    """validations without a better BLEU before training stops; null: never"""
    keep: int = 5
    """newest checkpoints that stay, beside the best"""
    average: int = 0
    """last checkpoints whose mean is added at the end; 0: none"""
    precision: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """auto: bfloat16 autocast where it makes this model's updates faster than float32 does;
    float16 scales the loss, and halves the scale when a gradient overflows"""
    skip: int = 3
    """updates in a row whose loss or gradient is not finite that are left out; one more: stop"""
    seed: int = 1

    def __post_init__(self) -> None:
        require_positive(self, "updates", "batch_tokens", "accumulate", "validate_every", "keep")
        if not 0 <= self.warmup <= self.updates:
            raise ValueError(f"warmup {self.warmup} must be within the {self.updates} updates")
        for name in ("skip", "average", "seed", "lr", "lr_start", "lr_end", "weight_decay"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name} {getattr(self, name)} must be at least 0, and finite")
        if self.patience is not None and self.patience < 1:
            raise ValueError(f"patience {self.patience} must be at least 1, or null")
        if self.clip is not None and not self.clip > 0:
            raise ValueError(f"clip {self.clip} must be above 0, or null for none")
        if self.average > self.keep:
            raise ValueError(f"average {self.average} needs more than the {self.keep} kept")


@dataclass(frozen=True)
class DecodeConfig:
    """Beam search."""

    __pydantic_config__ = {"extra": "forbid"}

    beam: int = 5
    lenpen: float = 1.0
    """a hypothesis scores log p / length^lenpen"""
    max_source: int = 1024
    """longer source sentences are cut, with a warning"""
    batch_tokens: int = 4096
    """most source tokens, padding included, that are translated at once"""

    def __post_init__(self) -> None:
        require_positive(self, "beam", "max_source", "batch_tokens")


@dataclass(frozen=True)
class Recipe:
    """All that decides a training run; YAML fills it (`dynconv.recipe`)."""

    __pydantic_config__ = {"extra": "forbid"}

    data: DataConfig = DataConfig()
    model: ModelConfig = ModelConfig()
    train: TrainConfig = TrainConfig()
    decode: DecodeConfig = DecodeConfig()
    profile: bool = False
    """write a trace of one update to RUN/trace.json (chrome://tracing, ui.perfetto.dev)"""
