"""The text."""

from dataclasses import dataclass
from typing import Literal

from dynconv.config.checks import require_positive


@dataclass(frozen=True)
class DataConfig:
    """The text: pairs of lines, or, for a language model, lines."""

    __pydantic_config__ = {"extra": "forbid"}

    corpus: str = "libreoffice-de-en"
    """a shipped corpus, a directory with {train,valid,test}.{source,target}, or a prepared one"""
    source: str | None = "de"
    """null: a language model of {train,valid,test}.{target}"""
    target: str = "en"
    vocabulary: Literal["bytes", "bpe", "words"] = "bytes"
    """what a vocabulary is learned of: byte-pair encoding of any text; the same of words that are
    tokenised already, as the papers have it; or those words themselves, rare ones <unk>"""
    block: int | None = None
    """a language model's training text in blocks of so many tokens; null: line by line"""
    max_source: int = 1024
    """tokens of a source that are read; the rest is cut off, in decoding with a warning"""
    max_tokens: int = 256
    """training pairs with a side longer than this, or than train.batch_tokens, are left out"""

    @property
    def longest(self) -> int:
        """Tokens of the longest line, or of a block, to train with."""
        return self.block or self.max_tokens

    def __post_init__(self) -> None:
        require_positive(self, "max_tokens", "max_source")
        if self.block is not None:
            require_positive(self, "block")
            if self.source is not None:
                raise ValueError(
                    f"block {self.block} is for language models, which have source: null"
                )
