"""`dynconv score`: score translations that any system made."""

from dynconv.cli.options import add_command, parse_path


def add_parser(subparsers) -> None:
    """Add `dynconv score`."""
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
        metavar="REFERENCES",
        help="a file of the expected texts, one per line; both files may be .gz or .xz",
    )
    parser.add_argument(
        "--metric",
        dest="metrics",
        action="append",
        metavar="NAME",
        help="a metric that recipes can name: bleu (with chrF), bleu-tokenized, bleu-split (as the "
        "papers on WMT En-De report it), bleu-detokenized, rouge, rouge-75; give it several times "
        "for several (default: bleu)",
    )
    parser.add_argument(
        "--language", default="en", help="of the text; only bleu-detokenized depends on it"
    )
    parser.add_argument("--lowercase", action="store_true", help="ignore case in BLEU")


def run(options) -> None:
    """Score a file of outputs against references, with 95% intervals of BLEU and chrF."""
    from dynconv.score import score_report
    from dynconv.text.lines import stream_parallel

    pairs = stream_parallel(options.hypotheses, options.references)
    hypotheses, references = zip(*pairs, strict=True)
    metrics, language = options.metrics or ["bleu"], options.language
    print(score_report(hypotheses, references, metrics, language, lowercase=options.lowercase))
