"""`dynconv train`: train a model from a recipe, or continue a run."""

from pathlib import Path
from signal import Signals

from dynconv.cli.options import ShowList, add_command, add_recipe, parse_path


def add_parser(subparsers) -> None:
    """Add `dynconv train`."""
    parser = add_command(subparsers, "train", run)
    add_recipe(parser)
    parser.add_argument(
        "--list",
        action=ShowList,
        nargs=0,
        const="list_recipes",
        help="show all recipes and rows of experiments, and stop",
    )
    parser.add_argument(
        "--run",
        "--run-dir",  # torchrun has options that begin with --run
        type=parse_path,
        metavar="RUN",
        help="the run directory (default: runs/RECIPE); under torchrun write --run-dir",
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="print the resolved recipe, count its parameters, rehearse it with a narrow copy of "
        "the model on some shipped text, and stop",
    )


def run(options) -> Signals | None:
    """Train a model from a recipe. The same command again resumes from the newest checkpoint."""
    from dynconv.config import dump_recipe, load_recipe, run_name
    from dynconv.errors import UserError

    if options.dry_run and options.run:
        raise UserError(
            f"--run {options.run} has no effect: --dry-run writes no run; leave out one of them"
        )
    recipe = load_recipe(options.recipe, options.overrides)
    if options.dry_run:
        from dynconv.lab.dry_run import dry_run

        print(dump_recipe(recipe))
        for line in dry_run(recipe):
            print(f"# {line}", flush=True)  # so that all of it is a recipe
        return None
    from dynconv.train import train
    from dynconv.train.distributed import torchrun_rank

    directory = options.run or Path("runs") / run_name(options.recipe)
    signal = train(recipe, directory)
    if signal is None and torchrun_rank() == 0:
        curves = f"dynconv plot {directory}, or tensorboard --logdir {directory}"
        print(f"run directory: {directory} (curves: {curves})")
    return signal
