"""Finds recipes and experiments by the names that commands take, and reads their files."""

from dataclasses import fields
from os.path import isfile  # false, where Path.is_file raises an error, for a name that is too long
from pathlib import Path

from dynconv.config.experiment import Experiment
from dynconv.config.legacy import rename_settings
from dynconv.config.tree import Tree
from dynconv.errors import UserError, did_you_mean, name_hint, quoted
from dynconv.paths import PACKAGE
from dynconv.schema import validated
from dynconv.yaml12 import read_yaml

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
        path = require_experiment(experiment)
        load_experiment(path).require_row(row)
        return path
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


def load_experiment(path: Path) -> Experiment:
    """Read and check an experiment. Raises UserError with one line that names key and value."""
    tree = rename_settings(read_mapping(path, "an experiment", Experiment), "experiment")
    return validated(Experiment, tree, str(path))


def load_experiments() -> dict[str, Experiment]:
    """Read the shipped experiments, by name."""
    return {name: load_experiment(path) for name, path in shipped_experiments().items()}


def recipe_names() -> list[str]:
    """Return the names that `dynconv train` knows: recipes, and EXPERIMENT:ROW.

    A row that only names a recipe is not listed again.
    """
    rows = [
        f"{name}:{row.name}"
        for name, experiment in load_experiments().items()
        for row in experiment.rows
        if row.recipe is None
    ]
    return [*shipped_recipes(), *rows]


def read_comment(path: Path) -> str:
    """Return the comment at the head of a YAML file as one line."""
    text = path.read_text(encoding="utf-8").splitlines()
    end = next(i for i, line in enumerate(text) if not line.startswith("#"))
    return " ".join(" ".join(line.removeprefix("#") for line in text[:end]).split())


def read_mapping(path: Path, what: str, schema: type) -> Tree:
    """Read a YAML file. Raises UserError unless it is a mapping."""
    tree = read_yaml(path) or {}
    if not isinstance(tree, dict):
        keys = ", ".join(field.name for field in fields(schema))
        raise UserError(f"{path}: {what} is a mapping with {keys}")
    return tree
