"""The sections of a recipe, and the checks that they fit together."""

from typing import Any, Literal

from dynconv.choices import Precision, VocabularyKind
from dynconv.config.model import MODEL_CONFIGS, AnyModelConfig
from dynconv.config.optimizers import OPTIMIZERS
from dynconv.config.schedules import SCHEDULES
from dynconv.config.tree import DEFAULT_ARCHITECTURE
from dynconv.errors import quoted
from dynconv.schema import (
    Beam,
    Flag,
    LengthPenalty,
    NonNegative,
    NonNegativeInt,
    Positive,
    PositiveInt,
    PositiveLength,
    Probability,
    checked_dataclass,
    finite,
    whole,
)
from dynconv.score.metric import METRICS
from dynconv.text.vocabulary import DEFAULT_KIND
from dynconv.yaml12 import as_override

# Type checkers accept no calls and no unpacking in annotations.
Accumulation: Any = whole(1, 10_000)
MetricName: Any = Literal[*METRICS, "perplexity"]
Momentum: Any = finite(gt=0, lt=1)
OptimizerName: Any = Literal[*OPTIMIZERS]
ScheduleName: Any = Literal[*SCHEDULES]
SourceTokens: Any = whole(2)
"""at least one token, and <eos>"""


@checked_dataclass
class DataConfig:
    """The text: pairs of lines, or lines for a language model."""

    corpus: str = "libreoffice-de-en"
    """a shipped corpus, a directory with {train,valid,test}.{source,target}, or a prepared one"""
    source: str | None = "de"
    """the suffix of the source; null: train a language model on {train,valid,test}.{target}"""
    target: str = "en"
    vocabulary: VocabularyKind = DEFAULT_KIND
    """the kind of vocabulary. bytes: byte-level BPE of raw text. bpe: BPE of text that is already
    split into words, as in the papers. words: whole words; rare ones become <unk>"""
    block_size: PositiveInt | None = None
    """tokens per training example of a language model; null: each line is an example"""
    max_source_tokens: SourceTokens = 1025
    """maximum tokens of a source, with <eos>; longer ones are truncated, with a warning when
    decoding"""
    max_example_tokens: PositiveInt = 256
    """maximum tokens of an example on its longer side, with <eos>. Training leaves out examples
    with more tokens than this or than train.batch_tokens, and reports how many"""

    @property
    def suffixes(self) -> tuple[str, ...]:
        """The suffixes of source and target, or of a language model's text."""
        return (self.target,) if self.source is None else (self.source, self.target)

    def __post_init__(self) -> None:
        if self.block_size is not None and self.source is not None:
            raise ValueError(
                f"block_size {self.block_size} is for language models, which have source: null"
            )
        if self.source == self.target:
            raise ValueError(f"source and target are both {quoted(self.target)}: name two suffixes")


@checked_dataclass
class TrainConfig:
    """The optimizer, the schedule, and when to validate, save and stop."""

    updates: PositiveInt = 30_000
    """total number of optimizer updates"""
    batch_tokens: PositiveInt = 4096
    """maximum tokens, padding included, on either side of a batch"""
    batch_sentences: PositiveInt | None = None
    """maximum sentences of a batch; null: as many as its tokens allow"""
    accumulate: Accumulation = 1
    """batches per update and process"""
    checkpoint_activations: Flag = False
    """whether to keep only the input of each block for the backward pass, which computes the rest
    again: less memory for a third more work, and the same gradients bit for bit"""
    lr: NonNegative = 5e-4
    """the peak learning rate, at the end of warm-up"""
    warmup: NonNegativeInt = 4000
    """updates in which the learning rate grows linearly from lr_start to lr"""
    schedule: ScheduleName = "inverse_sqrt"
    """the learning rate after warm-up. inverse_sqrt: lr sqrt(warmup / u) after u updates, or
    lr / sqrt(u) if warmup is 0. cosine: half a cosine, which reaches lr_end after the last update.
    plateau: keep lr until a validation loss fails to improve, then divide it by ten after every
    validation; stop below lr_end"""
    lr_start: NonNegative = 1e-7
    """the learning rate at the beginning of warm-up"""
    lr_end: NonNegative = 1e-7
    """the final rate of cosine, and the rate at which plateau stops"""
    optimizer: OptimizerName = "adamw"
    """the optimizer. adamw: Adam with decoupled weight decay. nag: SGD with Nesterov momentum"""
    momentum: Momentum = 0.99
    betas: tuple[Probability, Probability] = (0.9, 0.98)
    eps: NonNegative = 1e-8
    weight_decay: NonNegative = 0.0
    label_smoothing: Probability = 0.1
    """the probability that is taken from the right type and spread evenly over all others; 0, also
    by default, for a language model"""
    clip_norm: Positive | None = None
    """maximum gradient norm, for the mean loss per token; null: no clipping"""
    checkpoint_every: PositiveInt = 1000
    """updates between checkpoints; each checkpoint is validated"""
    patience: PositiveInt | None = None
    """validations without a better score before training stops; null: never"""
    keep_checkpoints: PositiveInt = 5
    """newest checkpoints that are kept in addition to the best"""
    average_checkpoints: NonNegativeInt = 0
    """number of last checkpoints to average at the end of training; 0: none"""
    precision: Precision = "auto"
    """the precision of training. auto: bfloat16 autocast on a GPU that supports it, and on a CPU if
    it makes timed updates at least 1.1 times as fast; otherwise float32. float16 scales the loss,
    and halves the scale when a gradient overflows"""
    max_skipped: NonNegativeInt = 3
    """maximum number of updates in a row that are skipped because loss or gradient is not finite;
    training stops at the next. Updates that float16 skips to halve its scale are not counted"""
    seed: NonNegativeInt = 1
    timeout: Positive = 60.0
    """seconds without an answer, within an update, after which a process counts as lost;
    validations, checkpoints and traces may take longer"""

    def __post_init__(self) -> None:
        if self.warmup > self.updates:
            raise ValueError(f"warmup {self.warmup} must be within the {self.updates} updates")
        if self.warmup and self.lr_start > self.lr:
            raise ValueError(
                f"lr_start {self.lr_start:g} exceeds lr {self.lr:g}: lower lr_start or raise lr"
            )
        if "lr_end" in SCHEDULES[self.schedule].options and self.lr_end > self.lr:
            raise ValueError(
                f"lr_end {self.lr_end:g} exceeds lr {self.lr:g}: lower lr_end or raise lr"
            )
        if self.average_checkpoints > self.keep_checkpoints:
            raise ValueError(
                f"average_checkpoints {self.average_checkpoints} exceeds keep_checkpoints "
                f"{self.keep_checkpoints}: raise keep_checkpoints"
            )


@checked_dataclass
class DecodeConfig:
    """The settings of beam search, and of scoring a language model."""

    beam: Beam = 5
    lenpen: LengthPenalty = 1.0
    """length penalty: the score of a hypothesis is log p / length^lenpen"""
    stepwise: Flag = False
    """the ranking of hypotheses. true: by this score at every step, so finished and unfinished
    hypotheses compete for the same beam; false: by this score only at the end"""
    min_tokens: PositiveLength = 1
    """minimum tokens of an output, with <eos>"""
    max_tokens: PositiveLength | None = None
    """maximum tokens of an output, with <eos>; null: twice the source's plus ten, at least
    min_tokens; never more than the model's positions"""
    no_repeat_ngram_size: NonNegativeInt = 0
    """the n of n-grams that may not occur twice in an output; 3: trigram blocking; 0: no limit"""
    replace_unknown: Flag = False
    """whether to replace <unk> by the source word with the highest attention, or by its dictionary
    entry"""
    dictionary: str | None = None
    """a file for replace_unknown, with lines `source word <tab> target word`"""
    context_window: NonNegativeInt = 0
    """tokens of context that a language model sees before each block that is scored"""
    batch_tokens: PositiveInt = 4096
    """maximum tokens of a batch, padding included: of sources or, for a language model, of the text
    that it scores"""

    def __post_init__(self) -> None:
        if self.max_tokens is not None and self.max_tokens < self.min_tokens:
            raise ValueError(
                f"max_tokens {self.max_tokens} must be at least min_tokens {self.min_tokens}"
            )


BEAM_SETTINGS = ("beam", "lenpen", "stepwise", "min_tokens", "max_tokens", "no_repeat_ngram_size")
"""entries of `decode` for beam search, which a language model does not use"""
OUTPUT_SETTINGS = (*BEAM_SETTINGS, "replace_unknown", "dictionary")
"""entries of `decode` on which a translator's outputs depend"""


def check_min_tokens(config: DecodeConfig, max_positions: int | None) -> None:
    """Raise ValueError if an output of `min_tokens` exceeds the model's positions."""
    if max_positions is not None and config.min_tokens > max_positions:
        raise ValueError(
            f"decode.min_tokens {config.min_tokens} exceeds model.max_positions "
            f"{max_positions}: lower the one or raise the other"
        )


@checked_dataclass
class PublishedScore:
    """The score of a paper's system that a recipe is meant to reproduce."""

    source: str
    """paper and table: Wu et al. 2019, Table 1"""
    row: str
    """the name of the system's row there"""
    value: str
    """the score as printed: 29.7, or 39.84 / 16.25 / 36.73, or diverges"""
    metric_in_words: str
    """the metric of the value; not a name of `dynconv.score.metric`"""
    parameters: str | None = None
    """the number of parameters as printed: 213M"""


@checked_dataclass
class Recipe:
    """All settings of a training run; `dynconv.config.load_recipe` reads it from YAML."""

    published: tuple[PublishedScore, ...] = ()
    data: DataConfig = DataConfig()
    model: AnyModelConfig = MODEL_CONFIGS[DEFAULT_ARCHITECTURE]()
    train: TrainConfig = TrainConfig()
    decode: DecodeConfig = DecodeConfig()
    metric: MetricName = "bleu"
    """the score that validation and evaluation report (`dynconv.score.metric`); perplexity, also by
    default, for a language model"""
    profile: Flag = False
    """whether to write a trace of one update to RUN/trace.json (chrome://tracing,
    ui.perfetto.dev)"""

    @property
    def example_limit(self) -> int:
        """The maximum number of tokens of a training example; longer ones are left out."""
        return min(self.data.block_size or self.data.max_example_tokens, self.train.batch_tokens)

    def __post_init__(self) -> None:
        self._check_task()
        self._check_lengths()
        self._check_smoothing()

    def _check_task(self) -> None:
        """Raise ValueError if the model cannot do what other sections ask of it."""
        architecture, translates = self.model.architecture, self.model.translates
        if translates == (self.data.source is None):
            ours = "the suffix of the source" if translates else "null"
            raise ValueError(
                f"data.source {as_override(self.data.source)} does not fit model.architecture "
                f"{architecture}: set data.source to {ours}, or choose another architecture"
            )
        if translates == (self.metric == "perplexity"):
            ours = "another metric, such as bleu" if translates else "perplexity"
            raise ValueError(
                f"metric {self.metric} does not fit model.architecture {architecture}: set metric "
                f"to {ours}"
            )
        words = self.data.vocabulary == "words"
        if self.decode.replace_unknown and not (self.model.shows_attention and words):
            able = [name for name, each in MODEL_CONFIGS.items() if each.shows_attention]
            raise ValueError(
                "decode.replace_unknown true needs the attention of model.architecture "
                f"{' or '.join(able)}, and data.vocabulary words: choose both, or set "
                "decode.replace_unknown to false"
            )

    def _check_lengths(self) -> None:
        """Raise ValueError if examples are too long for a batch or for the model."""
        block, limit = self.data.block_size, self.train.batch_tokens
        if block is not None and block > limit:
            raise ValueError(
                f"data.block_size {block} exceeds train.batch_tokens {limit}: lower the one or "
                "raise the other"
            )
        longest, positions = self.data.max_example_tokens, self.model.position_limit
        if positions is not None and longest > positions:
            raise ValueError(
                f"data.max_example_tokens {longest} exceeds model.max_positions {positions}: "
                "lower the one or raise the other"
            )
        check_min_tokens(self.decode, positions)

    def _check_smoothing(self) -> None:
        """Raise ValueError if the correct type could be less probable than any other."""
        smoothing, types = self.train.label_smoothing, self.model.vocab_sizes[1]
        if smoothing and not self.model.translates:
            raise ValueError(f"train.label_smoothing {smoothing} must be 0 for a language model")
        if smoothing * types > types - 1:
            raise ValueError(
                f"train.label_smoothing {smoothing} exceeds {types - 1}/{types}, which spreads it "
                "evenly over the vocabulary: lower it"
            )
