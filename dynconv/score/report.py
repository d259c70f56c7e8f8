"""The report that `dynconv score` prints."""

from collections.abc import Sequence

from dynconv.score.bleu import bleu_parts, chrf
from dynconv.score.rouge import rouge as rouge_scores

RESAMPLES = 1000  # sacreBLEU's own default


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

    sacreBLEU (13a) and chrF are always included; each flag adds its metric, ROUGE with stemming as
    in the papers. `lowercase` applies to every BLEU, not to chrF. Below each BLEU are its n-gram
    precisions, brevity penalty and lengths.
    """
    text = []
    ways = [(False, False)] + [(True, False)] * tokenized + [(True, True)] * compound_split
    for as_tokens, split in ways:
        score, parts = bleu_parts(
            hypotheses,
            references,
            lowercase=lowercase,
            tokenized=as_tokens,
            compound_split=split,
            bootstrap=RESAMPLES,
        )
        precisions = "/".join(f"{p:.1f}" for p in parts.precisions)
        text.append(str(score))
        text.append(  # the words of multi-bleu.perl, so that old logs compare at a glance
            f"    {precisions} (BP={parts.bp:.3f}, ratio={parts.ratio:.3f}, "
            f"hyp_len={parts.sys_len}, ref_len={parts.ref_len})"
        )
    text.append(str(chrf(hypotheses, references, bootstrap=RESAMPLES)))
    if rouge:
        text.extend(str(score) for score in rouge_scores(hypotheses, references, stem=True))
    return "\n".join(text)
