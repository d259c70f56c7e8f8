"""`dynconv generate`: sample text from a language model."""

from dynconv.cli.options import add_command, add_run, load_trained, number_type, positive_int, say
from dynconv.cli.stdout import write_utf8


def add_parser(subparsers) -> None:
    """Add `dynconv generate`."""
    parser = add_command(subparsers, "generate", run)
    add_run(parser)
    parser.add_argument(
        "--prompt", default="", metavar="TEXT", help="the text to continue (default: none)"
    )
    parser.add_argument(
        "--samples",
        type=number_type("Repeats"),
        default=1,
        metavar="N",
        help="number of continuations",
    )
    parser.add_argument(
        "--max-tokens",
        type=number_type("PositiveLength"),
        default=100,
        metavar="N",
        help="maximum tokens of a continuation",
    )
    parser.add_argument(
        "--temperature",
        type=number_type("NonNegative"),
        default=1,
        metavar="X",
        help="below 1 favours likely tokens; 0 always takes the most likely one",
    )
    parser.add_argument(
        "--top-k", type=positive_int, metavar="K", help="sample only from the K most likely tokens"
    )
    parser.add_argument(
        "--top-p",
        type=number_type("Fraction"),
        default=1,
        metavar="P",
        help="sample only from the fewest tokens whose probabilities sum to P; 1: from all",
    )
    parser.add_argument(
        "--seed",
        type=number_type("NonNegativeInt"),
        default=1,
        metavar="N",
        help="the same seed gives the same text",
    )


def run(options) -> None:
    """Sample continuations of a prompt from a language model."""
    from dynconv.tasks import LanguageModeling

    trained = load_trained(options, LanguageModeling)
    write_utf8()
    names = ("samples", "max_tokens", "temperature", "top_k", "top_p", "seed")
    sampling = {name: getattr(options, name) for name in names}
    for text in trained.continue_text(options.prompt, **sampling):
        say(text)
