"""Perplexity per token and per word."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from dynconv.errors import UserError
from dynconv.value_checks import check_lines

if TYPE_CHECKING:
    import numpy as np


class Perplexity(NamedTuple):
    """The perplexity of a text: exp of the mean negative log-likelihood per token or per word.

    As in the papers, words are separated by white space, and the <eos> of each line counts as one.
    Perplexities per word of the same text compare across vocabularies, unless one of them replaces
    many words by <unk>; perplexities per token do not. If each word is a token, both are equal.
    """

    nats: float
    """the negative log-likelihood -log p of the whole text"""
    tokens: int
    """the number of tokens, <eos> included"""
    words: int
    unknown_tokens: int = 0
    """tokens that are <unk>"""

    @property
    def per_token(self) -> float:
        """exp(nats / tokens)."""
        return bounded_exp(self.nats / self.tokens)

    @property
    def per_word(self) -> float:
        """exp(nats / words)."""
        return bounded_exp(self.nats / self.words)

    def records(self) -> list[dict[str, Any]]:
        """Return both perplexities as entries of SPLIT.scores.json."""
        return [
            {"metric": "perplexity per word", "value": self.per_word},
            {"metric": "perplexity per token", "value": self.per_token},
        ]

    def __str__(self) -> str:
        return (
            f"perplexity = {self.per_word:.2f} per word, {self.per_token:.2f} per token  "
            f"{self.words:,} words with one <eos> per line, {self.tokens:,} tokens"
            f"{f', {self.unknown_tokens:,} of them <unk>' if self.unknown_tokens else ''}"
        )


def perplexity(nll: np.ndarray, lines: Sequence[str], unknown_tokens: int = 0) -> Perplexity:
    """Compute the perplexity of lines whose N tokens, <eos> included, have these -log p (N,).

    unknown_tokens  how many of the tokens are <unk>

    Raises UserError for a text in place of a list of lines, and when there are no lines.
    """
    check_lines(lines)
    if not lines:
        raise UserError("nothing to score: the text has 0 lines")
    words = sum(len(line.split()) + 1 for line in lines)
    return Perplexity(float(nll.sum()), len(nll), words, unknown_tokens)


def bounded_exp(nats: float) -> float:
    """Return exp(nats), infinite where math.exp would overflow, as for a diverged model."""
    return math.inf if nats > 700 else math.exp(nats)
