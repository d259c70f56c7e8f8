"""Search."""

from dataclasses import dataclass

from dynconv.config.checks import require_positive


@dataclass(frozen=True)
class DecodeConfig:
    """Beam search."""

    __pydantic_config__ = {"extra": "forbid"}

    beam: int = 5
    lenpen: float = 1.0
    """a hypothesis scores log p / length^lenpen"""
    stepwise: bool = False
    """rank by that score at each step, so that finished hypotheses compete with unfinished ones for
    their places in the beam; false: only at the end"""
    min_length: int = 0
    """fewest tokens of an output, <eos> not counted"""
    max_length: int | None = None
    """most tokens of an output, <eos> included; null: twice the source's and ten, or min_length and
    <eos> where that is more. Never more than the positions that the model knows"""
    no_repeat: int = 0
    """size of the n-grams that no output may have twice; 3: trigram blocking; 0: none"""
    replace_unknown: bool = False
    """put the source word of most attention, or its entry in the dictionary, in place of <unk>"""
    dictionary: str | None = None
    """a file of lines `source word <tab> target word` for replace_unknown"""
    context: int = 0
    """tokens, at most, that a language model reads before each block it is scored on"""
    batch_tokens: int = 4096
    """most source tokens, padding included, that are translated at once"""

    def __post_init__(self) -> None:
        require_positive(self, "beam", "batch_tokens")
        if self.min_length < 0 or self.no_repeat < 0:
            raise ValueError(
                f"min_length {self.min_length} and no_repeat {self.no_repeat} must be at least 0"
            )
        if self.max_length is not None and self.max_length <= self.min_length:
            raise ValueError(
                f"max_length {self.max_length}, which counts <eos>, must exceed min_length "
                f"{self.min_length}"
            )
        if self.dictionary is not None and not self.replace_unknown:
            raise ValueError(f"dictionary {self.dictionary} is used by replace_unknown alone")
