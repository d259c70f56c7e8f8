"""`dynconv score`: score translations that any system made."""

from pathlib import Path

from dynconv.cli.options import add_command


def add_parser(subparsers) -> None:
    """Add `dynconv score`."""
    parser = add_command(subparsers, "score", run)
    parser.add_argument("hypothesis", type=Path)
    parser.add_argument("reference", type=Path)
    parser.add_argument("--lowercase", action="store_true", help="ignore case in BLEU")
    parser.add_argument(
        "--tokenized", action="store_true", help="add BLEU of the tokens as they are"
    )
    parser.add_argument(
        "--compound-split", action="store_true", help="add tokenised BLEU with hyphens set apart"
    )
    parser.add_argument("--rouge", action="store_true", help="add ROUGE-1, 2 and L, stemmed")


def run(options) -> None:
    """Score translations: sacreBLEU and chrF with 95% intervals, and what you ask for."""
    from dynconv.score import report
    from dynconv.text.corpus import stream_parallel

    hypotheses, references = zip(
        *stream_parallel(options.hypothesis, options.reference), strict=True
    )
    print(
        report(
            hypotheses,
            references,
            lowercase=options.lowercase,
            tokenized=options.tokenized,
            compound_split=options.compound_split,
            rouge=options.rouge,
        )
    )
