"""Perplexity, by token and by word."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dynconv.errors import UserError


class Perplexity(NamedTuple):
    """exp of the mean surprise of a text's tokens, or of its words.

    Words are what white space sets apart, and one <eos> a line, as the papers count. By word, two
    models of the same text compare whatever their vocabularies, unless one takes many words for the
    same <unk>; by token they do not. Of a text in which each word is a token both are the same.
    """

    nats: float
    """-log p of the whole text"""
    tokens: int
    """of the vocabulary, <eos> included"""
    words: int
    unknown: int = 0
    """tokens that are <unk>"""

    @property
    def per_token(self) -> float:
        """exp(nats / tokens)"""
        return _exp(self.nats / self.tokens)

    @property
    def per_word(self) -> float:
        """exp(nats / words)"""
        return _exp(self.nats / self.words)

    def __str__(self) -> str:
        return (
            f"perplexity = {self.per_word:.2f} a word, {self.per_token:.2f} a token  "
            f"{self.words:,} words with one <eos> a line, {self.tokens:,} tokens"
            f"{f', {self.unknown:,} of them <unk>' if self.unknown else ''}"
        )


def perplexity(nats: np.ndarray, lines: Sequence[str], unknown: int = 0) -> Perplexity:
    """Of lines of text, from the nats (N,) of all their tokens (`dynconv.decode.surprisal`), of
    which `unknown` are <unk>.

    Raises UserError when there are no lines.
    """
    if not lines:
        raise UserError("nothing to score: the text has 0 lines")
    words = sum(len(line.split()) + 1 for line in lines)
    return Perplexity(float(nats.sum()), len(nats), words, unknown)


def _exp(nats: float) -> float:
    """A model that has diverged has a perplexity beyond all numbers, not an OverflowError."""
    return math.inf if nats > 700 else math.exp(nats)
