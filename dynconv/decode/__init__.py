"""Generates and scores text: beam search, sampling, per-token log-likelihood."""

from dynconv.decode.likelihood import token_nll
from dynconv.decode.sampling import next_probabilities, sample
from dynconv.decode.search import Hypothesis, beam_search, greedy
from dynconv.decode.translating import translate

__all__ = [
    "Hypothesis",
    "beam_search",
    "greedy",
    "next_probabilities",
    "sample",
    "token_nll",
    "translate",
]
