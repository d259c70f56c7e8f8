"""Finds the files of recipes and experiments by the names that commands take."""

from os.path import isfile  # false, where Path.is_file raises an error, for a name that is too long
from pathlib import Path

from dynconv.errors import UserError, did_you_mean, name_hint, quoted
from dynconv.paths import PACKAGE

RECIPES = PACKAGE / "recipes"
EXPERIMENTS = PACKAGE / "experiments"


def shipped_recipes() -> dict[str, Path]:
    """Return the files of the shipped recipes by name."""
    return yaml_files(RECIPES)


def shipped_experiments() -> dict[str, Path]:
    """Return the files of the shipped experiments by name."""
    return yaml_files(EXPERIMENTS)


def yaml_files(folder: Path) -> dict[str, Path]:
    """Return the YAML files of a folder, by name without suffix."""
    return {file.stem: file for file in sorted(folder.glob("*.yaml"))}


def require_recipe(name: str) -> Path:
    """Return the file of a recipe; for EXPERIMENT:ROW, the file of the experiment.

    name  a shipped recipe's name, EXPERIMENT:ROW, or a path
    """
    shipped = shipped_recipes()
    if path := find_file(name, shipped):
        return path
    experiment, row = split_row(name)
    if row is not None:
        return require_experiment(experiment)
    hint = did_you_mean(name, shipped) or "dynconv train --list shows the shipped ones"
    raise UserError(f"no recipe {quoted(name)}: not shipped, and no such file; {hint}")


def split_row(recipe: str) -> tuple[str, str | None]:
    """Split EXPERIMENT:ROW; for a recipe's name or a file's path, the row is None."""
    experiment, colon, row = recipe.partition(":")
    return (experiment, row) if colon and not isfile(recipe) else (recipe, None)


def run_name(recipe: str) -> str:
    """Return a name for the recipe's run directory: RECIPE or EXPERIMENT-ROW."""
    stem = require_recipe(recipe).stem
    row = split_row(recipe)[1]
    return stem if row is None else f"{stem}-{row}"


def require_experiment(name: str) -> Path:
    """Return the file of an experiment, given a shipped name or a path."""
    return require_file(name, shipped_experiments(), "experiment")


def find_file(name: str, shipped: dict[str, Path]) -> Path | None:
    """Return the file of a shipped name, or else of a path; None if there is neither.

    A shipped name wins over a file of that name in the working directory: write ./NAME for yours.
    """
    return shipped.get(name) or (Path(name) if isfile(name) else None)


def require_file(name: str, shipped: dict[str, Path], kind: str) -> Path:
    """Return the file that `find_file` finds.

    Raises UserError with the nearest shipped name if there is none.
    """
    if path := find_file(name, shipped):
        return path
    hint = name_hint(name, shipped, "shipped are")
    raise UserError(f"no {kind} {quoted(name)}: not shipped, and no such file; {hint}")
