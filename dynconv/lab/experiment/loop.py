"""`dynconv experiment`: trains every row with every seed; rewrites the results after each run."""

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from pathlib import Path
from signal import Signals

from dynconv.config import Experiment, load_experiment, load_row, require_experiment
from dynconv.config.load import override_keys, read_comment, refuse_overrides
from dynconv.errors import UserError
from dynconv.files import check_writable
from dynconv.lab import ledger
from dynconv.lab.experiment.plot import plot_results
from dynconv.lab.experiment.run import Run
from dynconv.lab.experiment.table import collect_results, format_score, results_table
from dynconv.schema_errors import entry_keys
from dynconv.train.run_directory import folder_lock


def run_experiment(
    name: str,
    overrides: Sequence[str],
    seeds: int,
    folder: Path | None,
    output: Path | None,
    say: Callable[[str], None],
) -> Signals | None:
    """Train and score all unfinished runs; return the signal that interrupted it, if any.

    name       a shipped experiment's name, or a path
    overrides  key=value, for every row whose model has the entry
    seeds      number of seeds, 1 to `seeds`; all rows run with seed 1, then all with seed 2, ...
    folder     contains the run directories ROW-SEED; None: runs/NAME
    output     JSON file, and a plot of the same name; None: data/results/experiment-NAME.json

    A run whose loss or score is not finite is recorded as DIVERGES and counts as finished. Raises
    UserError for invalid input; finished runs are kept.
    """
    path = require_experiment(name)
    experiment = load_experiment(path)
    output = ledger.output_path(f"experiment-{path.stem}", output)
    drawing = plot_path(output)
    folder = folder or Path("runs") / path.stem
    foreign = foreign_overrides(experiment, overrides)
    runs = list_runs(name, experiment, overrides, foreign, seeds, folder)
    for row, texts in foreign.items():
        say(f"{row}: without {' '.join(texts)}, because its model has no such entry")
    command = ledger.command_line("experiment", name, *overrides, "--seeds", seeds)
    record = ledger.new_record(read_comment(path), command, {}, seeds=range(1, seeds + 1))

    def write() -> dict:
        record["numbers"] = {"experiment": path.stem, **collect_results(experiment, runs)}
        ledger.write(output, record)
        plot_results(record["numbers"], drawing)
        return record

    with folder_lock(folder):
        left = [run for run in runs if not run.finished]
        for run in left:
            run.check_split()
        say(f"{len(runs)} run{'s' * (len(runs) > 1)} in {folder}, {len(left)} to go")
        for number, run in enumerate(left, 1):
            signal = run.train_and_score()
            if signal is not None:
                return signal
            write()
            score = format_score(run.results["score"])
            say(f"{run.directory.name}: {score}, {len(left) - number} to go")
        say(results_table(write()))
    say(f"written to {output}, drawn in {drawing}")
    return None


def plot_path(output: Path) -> Path:
    """Return where the plot goes, beside the file of numbers. Raises UserError if it cannot."""
    drawing = output.with_suffix(".png")
    if drawing == output:
        raise UserError(f"{output}: this is the plot's name; name the file of numbers NAME.json")
    check_writable(drawing)
    if drawing.is_file() and not output.is_file():
        raise UserError(
            f"{drawing}: already exists, and the plot gets this name: name another --output"
        )
    return drawing


def foreign_overrides(experiment: Experiment, overrides: Sequence[str]) -> dict[str, list[str]]:
    """Return, by row, the overrides of entries that its model lacks but another row's model has.

    An override by a mapping is one of them if the row's model lacks every entry in it.
    """
    models = {row.name: type(load_row(experiment, row).model) for row in experiment.rows}
    keys = {row: set(entry_keys(model, "model.")) for row, model in models.items()}
    known = set().union(*keys.values())
    foreign = {
        row: [text for text in overrides if set() < override_keys([text]) <= known - own]
        for row, own in keys.items()
    }
    return {row: texts for row, texts in foreign.items() if texts}


def list_runs(
    name: str,
    experiment: Experiment,
    overrides: Sequence[str],
    foreign: Mapping[str, Sequence[str]],
    seeds: int,
    folder: Path,
) -> list[Run]:
    """Return the runs in the order in which they are trained, without starting any.

    foreign  by row, the overrides with which it is not trained

    Raises UserError if an override does not fit a row.
    """
    reason = "differs from run to run: give the number of seeds as --seeds"
    refuse_overrides(overrides, ["train.seed"], reason)
    runs = []
    for seed, row in product(range(1, seeds + 1), experiment.rows):
        own = [text for text in overrides if text not in foreign.get(row.name, ())]
        try:
            recipe = load_row(experiment, row, [*own, f"train.seed={seed}"])
        except UserError as error:
            if not overrides:
                raise
            alone = ledger.command_line("train", f"{name}:ROW", *overrides)
            raise UserError(
                f"{error}; an override changes every row, and `{alone}` trains one of them alone"
            ) from None
        runs.append(Run(row.name, seed, recipe, folder / f"{row.name}-{seed}"))
    return runs
