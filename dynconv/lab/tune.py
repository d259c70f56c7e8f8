"""`dynconv tune`: search over the settings of a recipe, in a space that a YAML file describes.

Every trial draws settings from the space and trains for a fraction of the recipe's updates. The
best train again, from the first update, for the next fraction (successive halving, Jamieson and
Talwalkar 2016). Only the validation split decides. Optuna draws the settings: the first ten
trials' at random, the others' by its tree-structured Parzen estimator.
"""

import json
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from signal import Signals
from typing import Any

from optuna import Study, create_study, logging
from optuna.samplers import TPESampler
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState
from typing_extensions import TypedDict

from dynconv.config import Recipe, load_recipe
from dynconv.config.find import run_name
from dynconv.config.unused import find_unused
from dynconv.errors import UserError
from dynconv.files import path_inside, read_json, replace_text
from dynconv.lab import ledger
from dynconv.lab.many_runs import try_training
from dynconv.lab.search_space import (
    SearchSpace,
    check_corners,
    check_not_replaced,
    load_space,
    overrides_of_round,
)
from dynconv.schema import Number, PositiveInt, validated_content
from dynconv.tasks import Validation
from dynconv.train import load_model
from dynconv.train.run_directory import folder_lock, match_recorded_recipe

TRIAL = "trial.json"
"""the file of a trial's result, in its run directory"""


class TrialResult(TypedDict):
    """What a trial has reached on the validation split."""

    updates: PositiveInt
    score: Number | None
    """the score as in Validation: higher is better; None, like the loss, when training diverged"""
    loss: Number | None
    """the loss in nats per token"""


class TrialRecord(TrialResult):
    """A trial in the record: its number, what it was trained with, and what it has reached."""

    trial: int
    settings: list[str]


def tune(
    name: str,
    overrides: Sequence[str],
    space: str,
    trials: int,
    folder: Path | None,
    output: Path | None,
    say: Callable[[str], None],
) -> Signals | None:
    """Search, and record each trial. The same command resumes; more trials continue the search.

    name       the recipe, as `load_recipe` takes it
    overrides  key=value, for every trial
    space      a shipped search space, or the file of one
    trials     the number of trials in the first round
    folder     where the run directories ROUND-TRIAL are; None: runs/tune-NAME
    output     JSON; None: data/results/tune-NAME.json

    Returns the signal that ended it early. Raises UserError for mistakes that a user can fix.
    """
    search = load_space(space)
    label = f"tune-{run_name(name)}"
    output, folder = ledger.output_path(label, output), folder or Path("runs") / label
    command = ledger.command_line("tune", name, *overrides, "--space", space, "--trials", trials)
    record = ledger.new_record(f"A search over the settings of {name}", command, {})
    check_not_replaced(overrides, search, space)
    base = load_recipe(name, overrides)
    distributions = search.distributions(find_unused(base))
    updates = [max(1, round(base.train.updates * part)) for part in search.fractions]
    check_corners(name, overrides, search, space, distributions, updates[0])
    rounds: list[list[TrialRecord]] = []
    record["numbers"] = {
        "space": {key: str(d) for key, d in distributions.items()},
        "rounds": rounds,
    }

    with folder_lock(folder):
        study = open_study(folder, record["numbers"]["space"])
        candidates = draw_trials(study, distributions, trials, search)
        for number, length in enumerate(map(overrides_of_round, updates)):
            rounds.append([])
            for trial, settings in candidates:
                recipe = load_recipe(name, [*overrides, *settings, *length])
                result = train_trial(recipe, folder / f"{number}-{trial:03}")
                if isinstance(result, Signals):
                    return result
                if study.trials[trial].state == TrialState.RUNNING:
                    study.tell(trial, trial_quality(result)[0])
                rounds[-1].append({"trial": trial, "settings": settings, **result})
                ledger.write(output, record)
                say(format_trial(rounds[-1][-1]))
            candidates = select_promoted(rounds[-1], search)
    chosen = max(rounds[-1], key=trial_quality)
    say(f"best: {format_trial(chosen)}\nwritten to {output}")
    return None


def open_study(folder: Path, space: dict[str, str]) -> Study:
    """Open the study of a folder, or begin one.

    Raises UserError if it searches another space, or if the file of its name is none of Optuna's.
    """
    logging.set_verbosity(logging.WARNING)
    path = path_inside(folder, "trials.log")
    try:
        if path.exists():
            with path.open("rb") as file:
                json.loads(file.readline() or b"{}")  # Optuna appends to any file
        storage = JournalStorage(JournalFileBackend(str(path)))
        study = create_study(
            storage=storage, study_name="tune", direction="maximize", load_if_exists=True
        )
    except (ValueError, KeyError, TypeError):
        raise UserError(f"{path}: no log of trials, or damaged: name another --run") from None
    if study.user_attrs.get("space", space) != space:
        raise UserError(f"{folder} contains a search over another space: name another --run")
    study.set_user_attr("space", space)
    # The sampler starts anew with each process, and must not draw the same settings again.
    study.sampler = TPESampler(seed=len(study.trials))
    return study


def draw_trials(
    study: Study, distributions: dict[str, Any], trials: int, search: SearchSpace
) -> Iterator[tuple[int, list[str]]]:
    """Yield the number and the settings of each trial: first earlier trials, then new ones."""
    for trial in study.trials[:trials]:
        yield trial.number, search.overrides(trial.params)
    while len(study.trials) < trials:
        trial = study.ask(distributions)
        yield trial.number, search.overrides(trial.params)


def train_trial(recipe: Recipe, run: Path) -> TrialResult | Signals:
    """Start or resume a trial; return its score and loss on the validation split.

    Both are None when training diverged. A signal that ended training early is returned instead.
    """
    record = run / TRIAL
    if record.exists():
        match_recorded_recipe(recipe, run)
        remedy = "remove it, and the trial is scored again"
        return validated_content(TrialResult, read_json(record, remedy), record, remedy)
    signal, diverged = try_training(recipe, run)
    if signal is not None:
        return signal
    meta = {} if diverged else load_model(run, "last").checkpoint.meta
    result: TrialResult = {
        "updates": recipe.train.updates,
        "score": meta.get("score"),
        "loss": meta.get("loss"),
    }
    replace_text(path_inside(run, TRIAL), json.dumps(result))
    return result


def select_promoted(results: list[TrialRecord], search: SearchSpace) -> list[tuple[int, list[str]]]:
    """Return the trials that go on to the next round, the best first."""
    ranked = sorted(results, key=trial_quality, reverse=True)
    return [
        (r["trial"], r["settings"])
        for r in ranked[: max(1, len(ranked) // search.reduction_factor)]
    ]


def trial_quality(result: TrialResult) -> tuple[float, float]:
    """Return the key that orders trials, a `Validation.quality`; one that diverged is the worst."""
    loss, score = (math.nan if result[key] is None else result[key] for key in ("loss", "score"))
    return Validation(loss, score, "").quality


def format_trial(result: TrialRecord) -> str:
    """Return a result in one line."""
    score = "diverges" if result["score"] is None else f"{result['score']:.2f}"
    return f"{score} after {result['updates']} updates: {' '.join(result['settings'])}"
