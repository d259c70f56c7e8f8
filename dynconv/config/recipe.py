"""Defines the sections of a recipe, and checks that they fit together."""

from typing import Any, Literal, NamedTuple

from dynconv.config.model import (
    AnyModelConfig,
    ConvS2SConfig,
    LanguageModelConfig,
    ModelConfig,
)
from dynconv.config.schema import (
    Beam,
    Dimension,
    Flag,
    Length,
    LengthPenalty,
    NonNegative,
    NonNegativeInt,
    Positive,
    PositiveInt,
    Probability,
    checked_dataclass,
    real,
    whole,
)
from dynconv.models.mixers import MIXERS

Metric = Literal[
    "bleu", "bleu-tokenized", "bleu-split", "bleu-detokenized", "rouge", "rouge-75", "perplexity"
]


class Optimizer(NamedTuple):
    """An optimizer, as recipes name it."""

    class_name: str
    """in torch.optim"""
    constants: dict[str, Any]
    """arguments that no recipe changes"""
    options: tuple[str, ...]
    """arguments that are entries of `train`, in addition to lr and weight_decay"""
    moments: tuple[str, ...]
    """what it stores per parameter, in the parameter's shape"""
    scalars: tuple[str, ...]
    """numbers that it stores per parameter"""
    state: str
    """the moments, in words"""


OPTIMIZERS = {
    "adam": Optimizer(
        class_name="AdamW",
        constants={},
        options=("betas", "eps"),
        moments=("exp_avg", "exp_avg_sq"),
        scalars=("step",),
        state="AdamW's two moments",
    ),
    "nag": Optimizer(
        class_name="SGD",
        constants={"nesterov": True},
        options=("momentum",),
        moments=("momentum_buffer",),
        scalars=(),
        state="the velocity",
    ),
}


@checked_dataclass
class DataConfig:
    """Describes the text: pairs of lines, or lines for a language model."""

    corpus: str = "libreoffice-de-en"
    """a shipped corpus, a directory with {train,valid,test}.{source,target}, or a prepared one"""
    source: str | None = "de"
    """null: a language model of {train,valid,test}.{target}"""
    target: str = "en"
    vocabulary: Literal["bytes", "bpe", "words"] = "bytes"
    """what a vocabulary is learned of: byte-pair encoding of any text; the same of words that are
    tokenised already, as the papers have it; or those words themselves, rare ones <unk>"""
    block: PositiveInt | None = None
    """a language model's training text in blocks of so many tokens; null: line by line"""
    max_source: PositiveInt = 1024
    """tokens of a source that are read; the rest is cut off, in decoding with a warning"""
    max_tokens: PositiveInt = 256
    """training pairs with a side longer than this, or than train.batch_tokens, are left out"""

    @property
    def longest(self) -> int:
        """Return the maximum number of tokens of a training example: a line or a block."""
        return self.block or self.max_tokens

    def __post_init__(self) -> None:
        if self.block is not None and self.source is not None:
            raise ValueError(f"block {self.block} is for language models, which have source: null")


@checked_dataclass
class TrainConfig:
    """Describes the optimizer, the schedule, and when to validate, save and stop."""

    updates: PositiveInt = 30_000
    """total number of optimizer updates"""
    batch_tokens: PositiveInt = 4096
    """maximum tokens, padding included, on either side of a batch"""
    batch_sentences: PositiveInt | None = None
    """maximum sentences of a batch; null: as many as its tokens allow"""
    accumulate: whole(1, 10_000) = 1
    """batches in one update, for each process"""
    lr: NonNegative = 5e-4
    """the peak, reached after warm-up"""
    warmup: NonNegativeInt = 4000
    """updates of linear growth from lr_start to lr"""
    schedule: Literal["inverse_sqrt", "cosine", "plateau"] = "inverse_sqrt"
    """after warm-up. inverse_sqrt: lr sqrt(warmup / u). cosine: half a cosine down to lr_end at the
    last update. plateau: keep lr until a validation loss fails to improve, then divide it by ten
    after every validation; stop below lr_end"""
    lr_start: NonNegative = 1e-7
    lr_end: NonNegative = 1e-7
    """the cosine's lowest point; where plateau ends"""
    optimizer: Literal[*OPTIMIZERS] = "adam"
    """AdamW, or Nesterov's accelerated gradient, stochastic gradient descent with `momentum`"""
    momentum: real(gt=0, lt=1) = 0.99
    betas: tuple[Probability, Probability] = (0.9, 0.98)
    eps: NonNegative = 1e-8
    weight_decay: NonNegative = 0.0
    label_smoothing: Probability = 0.1
    clip: Positive | None = None
    """largest norm of the gradient of the mean loss per token; null: no clipping"""
    validate_every: PositiveInt = 1000
    """updates between checkpoints; each one is validated"""
    patience: PositiveInt | None = None
    """validations without a better score before training stops; null: never"""
    keep: PositiveInt = 5
    """newest checkpoints that are kept in addition to the best"""
    average: NonNegativeInt = 0
    """last checkpoints whose mean is added at the end; 0: none"""
    precision: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """auto: bfloat16 autocast where it makes this model's updates faster than float32 does;
    float16 scales the loss, and halves the scale when a gradient overflows"""
    skip: NonNegativeInt = 3
    """updates in a row whose loss or gradient is not finite that are left out; one more: stop"""
    seed: NonNegativeInt = 1
    timeout: Positive = 60.0
    """seconds after which a process that does not answer the others within an update counts as
    lost; validations, checkpoints and traces may take longer"""

    def __post_init__(self) -> None:
        if self.warmup > self.updates:
            raise ValueError(f"warmup {self.warmup} must be within the {self.updates} updates")
        if self.average > self.keep:
            raise ValueError(f"average {self.average} needs more than the {self.keep} kept")


@checked_dataclass
class DecodeConfig:
    """Describes how text is generated, by beam search, and scored."""

    beam: Beam = 5
    lenpen: LengthPenalty = 1.0
    """a hypothesis scores log p / length^lenpen"""
    stepwise: Flag = False
    """rank by that score at each step, so that finished hypotheses compete with unfinished ones for
    their places in the beam; false: only at the end"""
    min_length: Length = 0
    """fewest tokens of an output, <eos> not counted"""
    max_length: Dimension | None = None
    """maximum tokens of an output, <eos> included; null: twice the source's and ten, or min_length
    and <eos> where that is more. Never more than the positions that the model knows"""
    no_repeat: NonNegativeInt = 0
    """size of the n-grams that no output may have twice; 3: trigram blocking; 0: none"""
    replace_unknown: Flag = False
    """replace <unk> by the source word with the most attention, or its entry in the dictionary"""
    dictionary: str | None = None
    """a file of lines `source word <tab> target word` for replace_unknown"""
    context: NonNegativeInt = 0
    """maximum tokens that a language model reads before each block it is scored on"""
    batch_tokens: PositiveInt = 4096
    """maximum source tokens, padding included, that are translated at once"""

    def __post_init__(self) -> None:
        if self.max_length is not None and self.max_length <= self.min_length:
            raise ValueError(
                f"max_length {self.max_length}, which counts <eos>, must exceed min_length "
                f"{self.min_length}"
            )
        if self.dictionary is not None and not self.replace_unknown:
            raise ValueError(f"dictionary {self.dictionary} is used by replace_unknown alone")


@checked_dataclass
class Published:
    """Quotes the row of a paper's table that a recipe is meant to reproduce."""

    source: str
    """paper and table, as Wu et al. 2019, Table 1"""
    row: str
    value: str
    """as printed, text: 29.7, or 39.84 / 16.25 / 36.73, or diverges"""
    metric: str
    """what the value is, in words"""
    parameters: str | None = None
    """as printed: 213M"""


@checked_dataclass
class Recipe:
    """Contains all that decides a training run; `dynconv.config.load_recipe` reads it from YAML."""

    published: tuple[Published, ...] = ()
    data: DataConfig = DataConfig()
    model: AnyModelConfig = ModelConfig()
    train: TrainConfig = TrainConfig()
    decode: DecodeConfig = DecodeConfig()
    metric: Metric = "bleu"
    """what validation and evaluation report (`dynconv.score.metric`)"""
    profile: Flag = False
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
        block, limit = self.data.block, self.train.batch_tokens
        if block is not None and block > limit:
            raise ValueError(
                f"data.block {block} exceeds train.batch_tokens {limit}: none would fit"
            )
        convs2s = isinstance(self.model, ConvS2SConfig)
        if convs2s and self.data.max_tokens > self.model.max_positions:
            raise ValueError(
                f"data.max_tokens {self.data.max_tokens} exceeds model.max_positions "
                f"{self.model.max_positions}: lower the one or raise the other"
            )
        if self.decode.replace_unknown and not (convs2s and self.data.vocabulary == "words"):
            raise ValueError(
                "decode.replace_unknown is for model.architecture convs2s, whose attention it asks "
                "for, with data.vocabulary words"
            )
        if language and self.train.label_smoothing:
            raise ValueError(
                f"train.label_smoothing {self.train.label_smoothing} must be 0 for a language model"
            )


SEARCH = ("beam", "lenpen", "stepwise", "min_length", "max_length", "no_repeat")
"""entries of `decode` for the search of a translation"""


def find_unused(recipe: Recipe) -> dict[str, str]:
    """Return the entries that this recipe's choices leave without effect, each with the reason."""
    data, model, train = recipe.data, recipe.model, recipe.train
    used = OPTIMIZERS[train.optimizer].options
    unread = {
        f"train.{option}": f"optimizer {train.optimizer} does not use it"
        for optimizer in OPTIMIZERS.values()
        for option in optimizer.options
        if option not in used
    }
    if train.schedule == "inverse_sqrt":
        unread["train.lr_end"] = "schedule inverse_sqrt has no end"
    if train.warmup == 0:
        unread["train.lr_start"] = "warmup is 0"
    if isinstance(model, LanguageModelConfig):
        unread["data.max_source"] = "a language model has no source"
        unread |= {f"decode.{name}": "a language model is not searched" for name in SEARCH}
        if data.block is not None:
            unread["data.max_tokens"] = "the text is cut into blocks"
        if model.bands is not None or not model.cutoffs:
            unread["model.factor"] = "it divides the width from band to band, without bands given"
    else:
        unread["decode.context"] = "only a language model reads it"
    if not isinstance(model, ConvS2SConfig):
        options = {option for mixer in MIXERS.values() for option in mixer.options}
        for name in options - model.used_options:
            unread[f"model.{name}"] = "no mixer of this model reads it"
    return unread
