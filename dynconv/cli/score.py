"""`dynconv score`: score translations that any system made."""

from dynconv.cli.options import add_command, path


def add_parser(subparsers) -> None:
    """Add `dynconv score`."""
    parser = add_command(subparsers, "score", run)
    parser.add_argument(
        "hypotheses",
        type=path,
        metavar="HYPOTHESES",
        help="a file of a system's outputs, one per line, such as RUN/test.hypotheses.txt",
    )
    parser.add_argument(
        "references",
        type=path,
        metavar="REFERENCES",
        help="a file of the expected texts, one per line; both files may be .gz or .xz",
    )
    parser.add_argument("--lowercase", action="store_true", help="ignore case in BLEU")
    parser.add_argument(
        "--tokenized",
        action="store_true",
        help="add BLEU of words between spaces, for text that is tokenised already",
    )
    parser.add_argument(
        "--compound-split",
        action="store_true",
        help="the same with compounds split at hyphens, as the papers on WMT En-De report it",
    )
    parser.add_argument("--rouge", action="store_true", help="add ROUGE-1, 2 and L of stems")


def run(options) -> None:
    """Score a file of outputs against references: sacreBLEU and chrF, with 95% intervals."""
    from dynconv.score import score_report
    from dynconv.text.lines import stream_parallel

    pairs = stream_parallel(options.hypotheses, options.references)
    hypotheses, references = zip(*pairs, strict=True)
    print(
        score_report(
            hypotheses,
            references,
            lowercase=options.lowercase,
            tokenized=options.tokenized,
            compound_split=options.compound_split,
            rouge=options.rouge,
        )
    )
