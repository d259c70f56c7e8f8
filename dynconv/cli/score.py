"""`dynconv score`: score translations that any system made."""

from collections.abc import Sequence

from dynconv.cli.options import add_command, parse_path


def add_parser(subparsers) -> None:
    """Add `dynconv score`."""
    from dynconv.score.metric import METRICS

    names = (f"{name} ({metric.note})" if metric.note else name for name, metric in METRICS.items())
    parser = add_command(subparsers, "score", run)
    parser.add_argument(
        "hypotheses",
        type=parse_path,
        metavar="HYPOTHESES",
        help="a file of a system's outputs, one per line, such as RUN/test.hypotheses.txt",
    )
    parser.add_argument(
        "references",
        type=parse_path,
        nargs="+",
        metavar="REFERENCES",
        help="a file of the expected texts, one per line; rouge-75 takes several files of "
        "references, and dynconv evaluate reads all; each file may be .gz or .xz",
    )
    parser.add_argument(
        "--metric",
        dest="metrics",
        action="append",
        metavar="NAME",
        help=f"a metric that recipes can name: {', '.join(names)}; give it several times for "
        "several (default: bleu)",
    )
    parser.add_argument(
        "--language",
        metavar="CODE",
        help="of the text (default: en); only bleu-detokenized depends on it",
    )
    parser.add_argument("--lowercase", action="store_true", help="ignore case in BLEU")


def run(options) -> None:
    """Score a file of outputs against references, with 95% intervals of BLEU and chrF."""
    from dynconv.score.metric import score_report
    from dynconv.text.lines import stream_parallel

    metrics, files = options.metrics or ["bleu"], options.references
    check_effects(metrics, len(files), options.lowercase, options.language)
    rows = list(stream_parallel(options.hypotheses, *files))
    hypotheses = [row[0] for row in rows]
    references = [row[1] if len(files) == 1 else row[1:] for row in rows]
    language, lowercase = options.language or "en", options.lowercase
    print(score_report(hypotheses, references, metrics, language, lowercase=lowercase))


def check_effects(
    metrics: Sequence[str], files: int, lowercase: bool, language: str | None
) -> None:
    """Raise UserError for files of references that a metric ignores, and options that all ignore.

    The same for a language that bleu-detokenized does not know.
    """
    from dynconv.errors import UserError
    from dynconv.score.metric import check_language, require_metric

    kinds = {name: require_metric(name) for name in metrics}
    for name, kind in kinds.items():
        if files > 1 and not kind.several_references:
            raise UserError(
                f"{name} reads one file of references, not {files}: give only the first"
            )
    if lowercase and all(kind.of_summaries for kind in kinds.values()):
        raise UserError("--lowercase has no effect: ROUGE always ignores case; leave it out")
    if language is not None:
        if not any(kind.depends_on_language for kind in kinds.values()):
            raise UserError(
                f"--language {language} has no effect on {' and '.join(kinds)}: leave it out"
            )
        check_language(language)
