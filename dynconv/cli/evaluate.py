"""`dynconv evaluate`: score a run on held-out text."""

from dynconv.cli.options import add_command, add_decoding, load_trained, say


def add_parser(subparsers) -> None:
    """Add `dynconv evaluate`."""
    parser = add_command(subparsers, "evaluate", run)
    parser.add_argument("--split", default="test", help="the split to score")
    parser.add_argument("--corpus", help="another text in the same languages (default: the run's)")
    add_decoding(parser)


def run(options) -> None:
    """Score a run on a split of its corpus: its outputs, ten of them shown, or perplexity."""
    from dynconv.train.run_directory import OUTPUTS

    evaluation = load_trained(options).evaluate(options.split, options.corpus)
    for example in evaluation.shown:
        for label, text in example.items():
            say(f"{label:<9}  {text}")
        say("")
    say(evaluation.summary)
    for score in evaluation.scores:
        say(str(score))
    if evaluation.outputs:
        say(f"outputs: {options.run / OUTPUTS.format(split=options.split)}")
