"""`dynconv experiment`: train and score every row of an experiment."""

from signal import Signals

from dynconv.cli.options import (
    ShowList,
    add_command,
    add_output,
    add_overrides,
    number_type,
    parse_path,
    say,
)


def add_parser(subparsers) -> None:
    """Add `dynconv experiment`."""
    parser = add_command(subparsers, "experiment", run)
    parser.add_argument("name", metavar="NAME", help="a shipped experiment's name, or a YAML file")
    add_overrides(parser, "replace an entry in the recipe of every row", "train.updates=300")
    parser.add_argument(
        "--seeds",
        type=number_type("Repeats"),
        default=3,
        metavar="N",
        help="train with seeds 1 to N",
    )
    parser.add_argument(
        "--run",
        type=parse_path,
        metavar="DIR",
        help="where to keep its runs ROW-SEED (default: runs/NAME)",
    )
    add_output(parser, "data/results/experiment-NAME.json, with a plot beside it")
    parser.add_argument(
        "--list",
        action=ShowList,
        nargs=0,
        const="list_experiments",
        help="show all experiments, and stop",
    )


def run(options) -> Signals | None:
    """Train and score an experiment's rows, with several seeds. The same command again resumes."""
    from dynconv.lab.experiment import run_experiment

    return run_experiment(
        options.name,
        options.overrides,
        seeds=options.seeds,
        folder=options.run,
        output=options.output,
        say=say,
    )
