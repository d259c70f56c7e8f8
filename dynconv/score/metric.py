"""The metrics that recipes and `dynconv score` name."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from dynconv.errors import UserError, name_hint, quoted
from dynconv.score.base import Score, check_pairs
from dynconv.score.bleu_score import bleu, chrf
from dynconv.score.summary_score import rouge

RESAMPLES = 1000
"""resamples of a bootstrap, sacreBLEU's default"""
SENTENCE_END = " ."
"""the end of a sentence within a line for ROUGE-L: the papers' summaries are tokenised, so a full
stop has a space before it"""


class Comparison(NamedTuple):
    """The outputs that a metric scores, with their references and its settings."""

    hypotheses: Sequence[str]
    references: Sequence
    """a text per line, or, for ROUGE, several"""
    language: str
    """language of the text; only bleu-detokenized depends on it"""
    bootstrap: int
    """resamples for the 95% intervals of BLEU and chrF; 0 for no intervals"""
    lowercase: bool = False
    """whether BLEU ignores case"""

    def bleu(self, **variant: bool) -> Score:
        """Return BLEU in a variant that `dynconv.score.bleu` knows, with these settings."""
        hypotheses, references, _, bootstrap, lowercase = self
        return bleu(hypotheses, references, lowercase=lowercase, bootstrap=bootstrap, **variant)


def compute_metric(
    metric: str,
    hypotheses: Sequence[str],
    references: Sequence,
    language: str = "en",
    bootstrap: int = 0,
    lowercase: bool = False,
) -> list[Score]:
    """Compute a metric's scores. Checkpoints are compared by the first of them.

    `Comparison` describes the other arguments. Raises UserError for another metric.
    """
    compute = require_metric(metric).compute
    check_pairs(hypotheses, references)
    return compute(Comparison(hypotheses, references, language, bootstrap, lowercase))


def score_report(
    hypotheses: Sequence[str],
    references: Sequence,
    metrics: Sequence[str] = ("bleu",),
    language: str = "en",
    *,
    lowercase: bool = False,
) -> str:
    """Return a line for each score of these metrics, with its 95% interval and signature.

    Below each BLEU are its n-gram precisions, brevity penalty and lengths.
    """
    scores = [
        score
        for metric in metrics
        for score in compute_metric(
            metric, hypotheses, references, language, RESAMPLES, lowercase=lowercase
        )
    ]
    unique = dict.fromkeys(scores)  # several metrics include sacreBLEU
    return "\n".join(f"{s}\n    {s.detail}" if s.detail else str(s) for s in unique)


def plain_bleu(texts: Comparison) -> list[Score]:
    """Compute sacreBLEU of plain text, then chrF."""
    return [texts.bleu(), chrf(texts.hypotheses, texts.references, bootstrap=texts.bootstrap)]


def detokenized_bleu(texts: Comparison) -> list[Score]:
    """Join the tokens of Moses to plain text on both sides, then compute `plain_bleu`."""
    from sacremoses import MosesDetokenizer

    join = MosesDetokenizer(texts.language).detokenize
    hypotheses = [join(line.split()) for line in texts.hypotheses]
    references = [join(line.split()) for line in texts.references]
    return plain_bleu(texts._replace(hypotheses=hypotheses, references=references))


def tokenized_bleu(texts: Comparison) -> list[Score]:
    """Compute BLEU of the tokens as they are, as in the papers, then sacreBLEU."""
    return [texts.bleu(tokenized=True), texts.bleu()]


def split_bleu(texts: Comparison) -> list[Score]:
    """Compute BLEU of the tokens with compounds split at hyphens, then `tokenized_bleu`."""
    return [texts.bleu(compound_split=True), *tokenized_bleu(texts)]


def mean_rouge(texts: Comparison, **options: Any) -> list[Score]:
    """Compute the mean F-score of ROUGE-1, 2 and L of stems, then each of them."""
    pair = texts.hypotheses, texts.references
    three = rouge(*pair, stem=True, sentence_end=SENTENCE_END, **options)
    mean = sum(score.value for score in three) / len(three)
    return [Score("ROUGE mean", mean, three[0].signature), *three]


class Metric(NamedTuple):
    """A metric that a recipe can name."""

    compute: Callable[[Comparison], list[Score]]
    """returns its scores; checkpoints are compared by the first"""
    of_summaries: bool = False
    """whether it scores summaries, not translations"""
    several_references: bool = False
    """whether it reads all references of a text, not only the first"""
    depends_on_language: bool = False
    """whether it depends on the language of the text"""
    note: str = ""
    """what the help of `dynconv score` says of it, in brackets"""


rouge_75 = partial(mean_rouge, recall=True, limit=75)  # recall of 75 bytes, as in DUC-2004

METRICS = {
    "bleu": Metric(plain_bleu, note="with chrF"),
    "bleu-tokenized": Metric(tokenized_bleu),
    "bleu-split": Metric(split_bleu, note="as the papers on WMT En-De report it"),
    "bleu-detokenized": Metric(detokenized_bleu, depends_on_language=True),
    "rouge": Metric(mean_rouge, of_summaries=True),
    "rouge-75": Metric(rouge_75, of_summaries=True, several_references=True),
}
"""the metrics of outputs, keyed by their names in recipes"""


def require_metric(name: str) -> Metric:
    """Return the metric of this name. Raises UserError when there is none."""
    if name not in METRICS:
        raise UserError(f"no metric {quoted(name)}; {name_hint(name, METRICS, 'there are')}")
    return METRICS[name]


def check_language(language: str) -> None:
    """Raise UserError for a code of a language that sacremoses does not know.

    It would join the tokens by rules that hold in most languages, without a word.
    """
    from sacremoses.corpus import NonbreakingPrefixes

    known = {*NonbreakingPrefixes().available_langs.values(), "ja", "ko"}
    if language not in known:
        hint = name_hint(language, sorted(known), "there are")
        raise UserError(f"no language {quoted(language)}; {hint}")
