"""ROUGE for summaries, computed by the rouge-score library."""

from collections.abc import Sequence
from importlib.metadata import version

from dynconv.errors import UserError
from dynconv.score.base import Score, check_pairs

KINDS = {"rouge1": "ROUGE-1", "rouge2": "ROUGE-2", "rougeL": "ROUGE-L"}


def rouge(hypotheses: Sequence[str], references: Sequence[str], *, stem: bool) -> list[Score]:
    """Mean F-scores of ROUGE-1, ROUGE-2 and ROUGE-L over the lines, 0 to 100.

    `stem` reduces words by the Porter stemmer first. The library follows ROUGE-1.5.5 but splits
    and stems words by its own rules: on headlines it came out 0.1 to 0.4 points above that script.
    """
    check_pairs(hypotheses, references)
    try:
        from rouge_score.rouge_scorer import RougeScorer
    except ImportError as error:
        raise UserError("ROUGE needs rouge-score: pip install rouge-score") from error
    scorer = RougeScorer(list(KINDS), use_stemmer=stem)
    lines = [scorer.score(ref, hyp) for hyp, ref in zip(hypotheses, references, strict=True)]
    signature = f"nrefs:1|stem:{'yes' if stem else 'no'}|rouge-score:{version('rouge-score')}"
    return [
        Score(name, 100 * sum(line[kind].fmeasure for line in lines) / len(lines), signature)
        for kind, name in KINDS.items()
    ]
