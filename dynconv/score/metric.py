"""The metrics that a recipe can name."""

from collections.abc import Sequence

from dynconv.score.base import Score
from dynconv.score.bleu import bleu, chrf
from dynconv.score.rouge import rouge


def measure(
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
                      and " ." ends a sentence
    rouge-75          as rouge, but recall within the first 75 bytes (DUC-2004); a line may have
                      several references

    language: the language of the text, which only bleu-detokenized uses
    bootstrap: resamples for the 95% intervals of BLEU and chrF; 0 for no intervals
    """
    if metric.startswith("rouge"):
        duc = {"recall": True, "limit": 75} if metric == "rouge-75" else {}
        three = rouge(hypotheses, references, stem=True, sentence_end=" .", **duc)
        mean = sum(score.value for score in three) / len(three)
        return [Score("ROUGE mean", mean, three[0].signature), *three]
    pair, options = (hypotheses, references), {"bootstrap": bootstrap}
    if metric == "bleu-detokenized":
        pair = tuple(detokenized(side, language) for side in pair)
    if metric in ("bleu", "bleu-detokenized"):
        return [bleu(*pair, **options), chrf(*pair, **options)]
    scores = [bleu(*pair, tokenized=True, **options), bleu(*pair, **options)]
    if metric == "bleu-split":
        scores.insert(0, bleu(*pair, tokenized=True, compound_split=True, **options))
    return scores


def detokenized(lines: Sequence[str], language: str) -> list[str]:
    """Join the tokens of Moses's tokeniser to plain text."""
    from sacremoses import MosesDetokenizer

    joiner = MosesDetokenizer(language)
    return [joiner.detokenize(line.split()) for line in lines]
