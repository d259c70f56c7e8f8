"""All sections together."""

from dataclasses import dataclass
from typing import Literal

from dynconv.config.convs2s import ConvS2SConfig
from dynconv.config.data import DataConfig
from dynconv.config.decode import DecodeConfig
from dynconv.config.language import LanguageModelConfig
from dynconv.config.seq2seq import ModelConfig
from dynconv.config.train import TrainConfig

AnyModelConfig = ModelConfig | ConvS2SConfig | LanguageModelConfig

MODELS = {
    "encoder-decoder": ModelConfig,
    "convs2s": ConvS2SConfig,
    "language-model": LanguageModelConfig,
}
"""the section `model`, by its entry `architecture`"""


@dataclass(frozen=True)
class Published:
    """A row of a paper's table that a recipe is meant to reproduce."""

    __pydantic_config__ = {"extra": "forbid"}

    source: str
    """paper and table, as Wu et al. 2019, Table 1"""
    row: str
    value: str
    """as printed, text: 29.7, or 39.84 / 16.25 / 36.73, or diverges"""
    metric: str
    """what the value is, in words"""
    parameters: str | None = None
    """as printed: 213M"""


@dataclass(frozen=True)
class Recipe:
    """All that decides a training run; YAML fills it (`dynconv.config.load`)."""

    __pydantic_config__ = {"extra": "forbid"}

    published: tuple[Published, ...] = ()
    data: DataConfig = DataConfig()
    model: AnyModelConfig = ModelConfig()
    train: TrainConfig = TrainConfig()
    decode: DecodeConfig = DecodeConfig()
    metric: Literal[
        "bleu",
        "bleu-tokenized",
        "bleu-split",
        "bleu-detokenized",
        "rouge",
        "rouge-75",
        "perplexity",
    ] = "bleu"
    """what validation and evaluation report (`dynconv.score.metric`)"""
    profile: bool = False
    """write a trace of one update to RUN/trace.json (chrome://tracing, ui.perfetto.dev)"""

    def __post_init__(self) -> None:
        language = isinstance(self.model, LanguageModelConfig)
        if language != (self.data.source is None):
            raise ValueError(
                "a language model has data.source: null, and any other model has a source; "
                f"model.architecture is {self.model.architecture}, data.source {self.data.source}"
            )
        if language != (self.metric == "perplexity"):
            raise ValueError(
                "metric perplexity is for language models, and is their only one; "
                f"model.architecture is {self.model.architecture}, metric {self.metric}"
            )
        block, most = self.data.block, self.train.batch_tokens
        if block is not None and block > most:
            raise ValueError(
                f"data.block {block} exceeds train.batch_tokens {most}: none would fit"
            )
        reach = getattr(self.model, "max_positions", None)
        if reach is not None and self.data.max_tokens > reach:
            raise ValueError(
                f"data.max_tokens {self.data.max_tokens} exceeds model.max_positions {reach}: "
                "lower the one or raise the other"
            )
        convs2s = isinstance(self.model, ConvS2SConfig)
        if self.decode.replace_unknown and not (convs2s and self.data.vocabulary == "words"):
            raise ValueError(
                "decode.replace_unknown is for model.architecture convs2s, whose attention it asks "
                "for, with data.vocabulary words"
            )
        if language and self.train.label_smoothing:
            raise ValueError(
                f"train.label_smoothing {self.train.label_smoothing} must be 0 for a language model"
            )
