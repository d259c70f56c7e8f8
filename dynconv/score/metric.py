"""The metrics that a recipe may name."""

from collections.abc import Sequence

from dynconv.score.base import Score
from dynconv.score.bleu import bleu, chrf
from dynconv.score.rouge import rouge


def measure(
    metric: str,
    hypotheses: Sequence[str],
    references: Sequence[str],
    bootstrap: int = 0,
) -> list[Score]:
    """The scores of a recipe's metric; the first is the one that decides.

    bleu            sacreBLEU of plain text, and chrF
    bleu-tokenized  BLEU of the tokens as they are (as the papers have it), and sacreBLEU
    bleu-split      the same with compounds split at hyphens, then without, then sacreBLEU
    rouge           the mean F-score of ROUGE-1, 2 and L, then each; words stemmed

    bootstrap: resamples for the 95% intervals of BLEU and chrF; 0: no intervals
    """
    if metric == "rouge":
        three = rouge(hypotheses, references, stem=True)
        mean = sum(score.value for score in three) / len(three)
        return [Score("ROUGE mean", mean, three[0].signature), *three]
    pair, options = (hypotheses, references), {"bootstrap": bootstrap}
    if metric == "bleu":
        return [bleu(*pair, **options), chrf(*pair, **options)]
    scores = [bleu(*pair, tokenized=True, **options), bleu(*pair, **options)]
    if metric == "bleu-split":
        scores.insert(0, bleu(*pair, tokenized=True, compound_split=True, **options))
    return scores
