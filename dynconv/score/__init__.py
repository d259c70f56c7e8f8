"""Scores of translations and summaries, each with a signature so that others can repeat it."""

# As in `ops`, no module is named after its function.
from dynconv.score.base import Score
from dynconv.score.bleu_score import bleu, chrf, split_compounds
from dynconv.score.metric import compute_metric
from dynconv.score.perplexity_score import Perplexity, perplexity
from dynconv.score.summary_score import lead, rouge

__all__ = [
    "Perplexity",
    "Score",
    "bleu",
    "chrf",
    "compute_metric",
    "lead",
    "perplexity",
    "rouge",
    "split_compounds",
]
