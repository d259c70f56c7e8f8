"""`dynconv tune`: search over the settings of a recipe."""

from signal import Signals

from dynconv.cli.options import add_command, add_output, add_recipe, parse_path, positive_int, say


def add_parser(subparsers) -> None:
    """Add `dynconv tune`."""
    parser = add_command(subparsers, "tune", run)
    add_recipe(parser)
    parser.add_argument(
        "--space",
        default="translation",
        metavar="SPACE",
        help="the search space: a shipped name, or a YAML file",
    )
    parser.add_argument(
        "--trials",
        type=positive_int,
        default=16,
        metavar="N",
        help="number of trials in the first round",
    )
    parser.add_argument(
        "--run",
        type=parse_path,
        metavar="DIR",
        help="where to keep the runs of the trials (default: runs/tune-NAME)",
    )
    add_output(parser, "data/results/tune-NAME.json")


def run(options) -> Signals | None:
    """Search for the settings that validate best. The same command again resumes."""
    from dynconv.lab.tune import tune

    return tune(
        options.recipe,
        options.overrides,
        space=options.space,
        trials=options.trials,
        folder=options.run,
        output=options.output,
        say=say,
    )
