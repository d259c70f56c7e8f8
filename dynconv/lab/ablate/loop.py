"""`dynconv ablate`: trains every row with every seed; rewrites the whole table after each run."""

from collections.abc import Callable, Sequence
from pathlib import Path
from signal import Signals

from dynconv.config import ExperimentRow, load_experiment, load_row, require_experiment
from dynconv.config.find import read_comment
from dynconv.errors import UserError
from dynconv.files import check_writable
from dynconv.lab import ledger
from dynconv.lab.ablate.plot import plot_results
from dynconv.lab.ablate.run import Run
from dynconv.lab.ablate.table import format_score, results, results_table
from dynconv.train.run_directory import folder_lock


def ablate(
    name: str,
    overrides: Sequence[str],
    seeds: int,
    folder: Path | None,
    output: Path | None,
    say: Callable[[str], None],
) -> Signals | None:
    """Train and score all unfinished runs; return the signal that interrupted it, if any.

    name       a shipped experiment's name, or a path
    overrides  key=value, for every row
    seeds      number of seeds, 1 to `seeds`; all rows run with seed 1, then all with seed 2, ...
    folder     contains the run directories ROW-SEED; None: runs/NAME
    output     JSON file, and a plot of the same name; None: data/results/ablate-NAME.json

    A run whose loss or score is not finite is recorded as DIVERGES and counts as finished. Raises
    UserError for invalid input; finished runs are kept.
    """
    path = require_experiment(name)
    experiment = load_experiment(path)
    if any(text.startswith("train.seed=") for text in overrides):
        raise UserError("train.seed differs from run to run: give the number of seeds as --seeds")
    output = ledger.output_path(f"ablate-{path.stem}", output)
    drawing = output.with_suffix(".png")
    if drawing == output:
        raise UserError(f"{output}: this is the plot's name; name the file of numbers NAME.json")
    check_writable(drawing)
    if drawing.is_file() and not output.is_file():
        raise UserError(
            f"{drawing}: already exists, and the plot gets this name: name another --output"
        )
    folder = folder or Path("runs") / path.stem

    def plan(row: ExperimentRow, seed: int) -> Run:
        try:
            recipe = load_row(experiment, row, (*overrides, f"train.seed={seed}"))
        except UserError as error:
            if not overrides:
                raise
            alone = ledger.command_line("train", f"{name}:ROW", *overrides)
            raise UserError(
                f"{error}; ablate changes every row, and `{alone}` trains one of them alone"
            ) from None
        return Run(row.name, seed, recipe, folder / f"{row.name}-{seed}")

    runs = [plan(row, seed) for seed in range(1, seeds + 1) for row in experiment.rows]

    command = ledger.command_line("ablate", name, *overrides, "--seeds", seeds)
    entry = ledger.entry(read_comment(path), command, {}, seeds=range(1, seeds + 1))

    def write() -> dict:
        entry["numbers"] = {"ablation": path.stem, **results(experiment, runs)}
        ledger.write(output, entry)
        plot_results(entry["numbers"], drawing)
        return entry

    with folder_lock(folder):
        left = [run for run in runs if not run.finished]
        for run in left:
            run.check_split()
        say(f"{len(runs)} run{'s' * (len(runs) > 1)} in {folder}, {len(left)} to go")
        for number, run in enumerate(left, 1):
            signal = run.finish()
            if signal is not None:
                return signal
            write()
            score = format_score(run.results["score"])
            say(f"{run.directory.name}: {score}, {len(left) - number} to go")
        say(results_table(write()))
    say(f"written to {output}, drawn in {drawing}")
    return None
