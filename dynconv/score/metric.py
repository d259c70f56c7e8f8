"""The metric that a recipe names, and the report of `dynconv score`."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from dynconv.score.base import Score
from dynconv.score.bleu import bleu, chrf
from dynconv.score.rouge import rouge as compute_rouge

RESAMPLES = 1000
"""of a bootstrap, as is sacreBLEU's default"""
SENTENCE_END = " ."
"""what ends a sentence within a line for ROUGE-L, in `dynconv score` as in `dynconv evaluate`: the
papers' summaries are tokenised, so a full stop has a space before it"""


def compute_metric(
    metric: str,
    hypotheses: Sequence[str],
    references: Sequence[str] | Sequence[Sequence[str]],
    language: str = "en",
    bootstrap: int = 0,
) -> list[Score]:
    """Compute the scores of a recipe's metric; checkpoints are compared by the first.

    bleu              sacreBLEU of plain text, then chrF
    bleu-tokenized    BLEU of the tokens as they are, as in the papers, then sacreBLEU
    bleu-split        BLEU of the tokens with compounds split at hyphens, then as bleu-tokenized
    bleu-detokenized  Moses's tokens are joined to plain text on both sides, then as bleu
    rouge             the mean F-score of ROUGE-1, 2 and L, then each of them; words are stemmed,
                      and `SENTENCE_END` ends a sentence
    rouge-75          as rouge, but recall within the first 75 bytes (DUC-2004); a line may have
                      several references

    language   of the text, which only bleu-detokenized uses
    bootstrap  resamples for the 95% intervals of BLEU and chrF; 0 for no intervals

    Raises ValueError for another metric.
    """
    if metric not in METRICS:
        raise ValueError(f"no metric {metric!r}")
    return METRICS[metric](hypotheses, references, language, bootstrap)


def plain_bleu(
    hypotheses: Sequence[str], references: Sequence, language: str, bootstrap: int
) -> list[Score]:
    return [
        bleu(hypotheses, references, bootstrap=bootstrap),
        chrf(hypotheses, references, bootstrap=bootstrap),
    ]


def detokenized_bleu(
    hypotheses: Sequence[str], references: Sequence, language: str, bootstrap: int
) -> list[Score]:
    from sacremoses import MosesDetokenizer

    join = MosesDetokenizer(language).detokenize
    hypotheses = [join(line.split()) for line in hypotheses]
    references = [join(line.split()) for line in references]
    return plain_bleu(hypotheses, references, language, bootstrap)


def tokenized_bleu(
    hypotheses: Sequence[str], references: Sequence, language: str, bootstrap: int
) -> list[Score]:
    return [
        bleu(hypotheses, references, tokenized=True, bootstrap=bootstrap),
        bleu(hypotheses, references, bootstrap=bootstrap),
    ]


def split_bleu(
    hypotheses: Sequence[str], references: Sequence, language: str, bootstrap: int
) -> list[Score]:
    split = bleu(hypotheses, references, compound_split=True, bootstrap=bootstrap)
    return [split, *tokenized_bleu(hypotheses, references, language, bootstrap)]


def mean_rouge(
    hypotheses: Sequence[str], references: Sequence, language: str, bootstrap: int, **options: Any
) -> list[Score]:
    three = compute_rouge(hypotheses, references, stem=True, sentence_end=SENTENCE_END, **options)
    mean = sum(score.value for score in three) / len(three)
    return [Score("ROUGE mean", mean, three[0].signature), *three]


METRICS: dict[str, Callable[..., list[Score]]] = {
    "bleu": plain_bleu,
    "bleu-tokenized": tokenized_bleu,
    "bleu-split": split_bleu,
    "bleu-detokenized": detokenized_bleu,
    "rouge": mean_rouge,
    "rouge-75": partial(mean_rouge, recall=True, limit=75),
}
"""the functions of `compute_metric`, by the names in `dynconv.names`"""


def report(
    hypotheses: Sequence[str],
    references: Sequence[str],
    *,
    lowercase: bool = False,
    tokenized: bool = False,
    compound_split: bool = False,
    rouge: bool = False,
) -> str:
    """Return a line for each metric, with value, 95% interval and signature.

    sacreBLEU (13a) and chrF are always included; each flag adds its metric, ROUGE with the stemming
    and sentences of the metric "rouge". `lowercase` applies to every BLEU, not to chrF. Below each
    BLEU are its n-gram precisions, brevity penalty and lengths.
    """
    pair = hypotheses, references
    options: dict[str, Any] = {"lowercase": lowercase, "bootstrap": RESAMPLES}
    scores = [bleu(*pair, **options)]
    if tokenized:
        scores.append(bleu(*pair, tokenized=True, **options))
    if compound_split:
        scores.append(bleu(*pair, compound_split=True, **options))
    scores.append(chrf(*pair, bootstrap=RESAMPLES))
    if rouge:
        scores += compute_rouge(*pair, stem=True, sentence_end=SENTENCE_END)
    return "\n".join(f"{s}\n    {s.detail}" if s.detail else str(s) for s in scores)
