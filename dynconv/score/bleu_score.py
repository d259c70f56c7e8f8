"""BLEU, in the three variants that the papers report, and chrF, by sacreBLEU."""

import re
from collections.abc import Sequence
from typing import Any

from dynconv.score.base import Score, check_pairs

COMPOUND = re.compile(r"(\S)-(\S)")
"""a hyphen inside a word, with the characters around it"""


def split_compounds(line: str) -> str:
    """Set every hyphen inside a word apart, as the WMT En-De papers did before BLEU.

    One pass without overlap, like Perl's `s{(\\S)-(\\S)}{$1 ##AT##-##AT## $2}g`: "x-y-z" splits
    once, because the y that ends the first match cannot begin a second.
    """
    return COMPOUND.sub(r"\1 ##AT##-##AT## \2", line)


def bleu(
    hypotheses: Sequence[str],
    references: Sequence[str],
    *,
    lowercase: bool = False,
    tokenized: bool = False,
    compound_split: bool = False,
    bootstrap: int = 0,
) -> Score:
    """Compute corpus BLEU with one reference per line.

    lowercase       ignore case
    tokenized       split lines only at spaces, like multi-bleu.perl, rather than with 13a
    compound_split  apply `split_compounds` to both sides first; implies tokenized
    bootstrap       resamples (2 or more) for the 95% interval; sacreBLEU fixes their seed
    """
    from sacrebleu.metrics import BLEU

    check_pairs(hypotheses, references)
    if tokenized or compound_split:
        # multi-bleu.perl does not smooth: no matching 4-gram means BLEU 0.
        metric = BLEU(lowercase=lowercase, tokenize="none", smooth_method="none", force=True)
    else:
        metric = BLEU(lowercase=lowercase, tokenize="13a")
    if compound_split:
        hypotheses = [split_compounds(line) for line in hypotheses]
        references = [split_compounds(line) for line in references]
    result, interval = corpus_score(metric, hypotheses, references, bootstrap)
    signature = metric.get_signature()
    name = "BLEU, tokenized" if tokenized else "BLEU"
    if compound_split:
        signature.update("compounds", "split")
        name = "BLEU, compounds split"
    precisions = "/".join(f"{p:.1f}" for p in result.precisions)
    detail = (  # the words of multi-bleu.perl, so that old logs compare at a glance
        f"{precisions} (BP={result.bp:.3f}, ratio={result.ratio:.3f}, "
        f"hyp_len={result.sys_len}, ref_len={result.ref_len})"
    )
    return Score(name, result.score, str(signature), *interval, detail)


def chrf(hypotheses: Sequence[str], references: Sequence[str], *, bootstrap: int = 0) -> Score:
    """Compute corpus chrF2, the F-score of character 1- to 6-grams; `bootstrap` as for `bleu`."""
    from sacrebleu.metrics import CHRF

    check_pairs(hypotheses, references)
    metric = CHRF()
    result, interval = corpus_score(metric, hypotheses, references, bootstrap)
    return Score("chrF2", result.score, str(metric.get_signature()), *interval)


def corpus_score(
    metric: Any, hypotheses: Sequence[str], references: Sequence[str], bootstrap: int
) -> tuple[Any, tuple[float | None, float | None]]:
    """Return sacreBLEU's result and its 95% interval, (None, None) without `bootstrap`.

    All that we use of sacreBLEU's private attributes is here.
    """
    if hasattr(metric, "_compute_f_score"):  # chrF
        # sacreBLEU averages the resamples with statistics.mean, which refuses mixed types:
        # a score of 0 is a float, the others are numpy.float32.
        compute = metric._compute_f_score
        metric._compute_f_score = lambda counts: float(compute(counts))
    result: Any = metric.corpus_score(list(hypotheses), [list(references)], n_bootstrap=bootstrap)
    if bootstrap < 2:
        return result, (None, None)
    # Printed as "mu = mean ± half-width"; no score lies outside 0 and 100.
    low, high = float(result._mean - result._ci), float(result._mean + result._ci)
    return result, (max(low, 0.0), min(high, 100.0))
