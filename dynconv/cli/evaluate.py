"""`dynconv evaluate`: score a run on held-out text."""

from dynconv.cli.options import add_command, add_decoding, load_model, say


def add_parser(subparsers) -> None:
    """Add `dynconv evaluate`."""
    parser = add_command(subparsers, "evaluate", run)
    parser.add_argument("--split", default="test", help="default: test")
    parser.add_argument("--corpus", help="other text of the same languages (default: the run's)")
    add_decoding(parser)


def run(options) -> None:
    """Score a run on a split of its corpus: outputs, ten of them shown, or perplexity."""
    from dynconv.decode.evaluate import evaluate

    for line in evaluate(options.directory, load_model(options), options.split, options.corpus):
        say(line)
