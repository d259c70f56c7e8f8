"""Recipes and experiments from YAML, checked against the dataclasses of this package.

A recipe is a stack of layers: the recipe that its `base` names, its own entries, the `key=value`s
of a command. What an upper layer says replaces what a lower one does (`merge`); the result is
checked as a whole (`resolve`).
"""

import re
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import asdict, fields, is_dataclass
from pathlib import Path
from typing import Any, get_args

from pydantic import TypeAdapter, ValidationError

from dynconv.config.experiment import Experiment, Row
from dynconv.config.files import parse_yaml, read_yaml
from dynconv.config.model import MODELS, ModelConfig, StackConfig
from dynconv.config.recipe import Recipe, find_unread
from dynconv.errors import UserError, nearest
from dynconv.models.mixers import MIXERS, SIZES

RECIPES = Path(__file__).parents[1] / "recipes"
EXPERIMENTS = Path(__file__).parents[1] / "experiments"

Tree = dict[str, Any]


def shipped_recipes() -> dict[str, Path]:
    """Return the files of the shipped recipes by name."""
    return {file.stem: file for file in sorted(RECIPES.glob("*.yaml"))}


def shipped_experiments() -> dict[str, Path]:
    """Return the files of the shipped experiments by name."""
    return {file.stem: file for file in sorted(EXPERIMENTS.glob("*.yaml"))}


def find_recipe(name: str) -> Path:
    """Return the file that a recipe's name stands for.

    name  of a shipped recipe; EXPERIMENT:ROW, which stands for the experiment's file; or a path
    """
    shipped = shipped_recipes()
    if name in shipped:
        return shipped[name]
    if Path(name).is_file():
        return Path(name)
    experiment, colon, row = name.partition(":")
    if colon:
        path = find_experiment(experiment)
        load_experiment(path).find_row(row)
        return path
    hint = nearest(name, shipped, "")
    if not hint.startswith("did"):
        hint = "dynconv train --list shows the shipped ones"
    hint = find_renamed(name) or hint
    raise UserError(f"no recipe {name!r}: not shipped, and no such file; {hint}")


def run_name(recipe: str) -> str:
    """Return the name of a recipe's run directory: that of its file, and of its row."""
    row = "" if Path(recipe).is_file() else recipe.partition(":")[2]
    return find_recipe(recipe).stem + (f"-{row}" if row else "")


def find_experiment(name: str) -> Path:
    """Return the file of an experiment: a shipped name, or a path."""
    shipped = shipped_experiments()
    if name in shipped:
        return shipped[name]
    if Path(name).is_file():
        return Path(name)
    hint = nearest(name, shipped, "shipped are")
    raise UserError(f"no experiment {name!r}: not shipped, and no such file; {hint}")


def find_renamed(name: str) -> str | None:
    """Return where a table's row is today that was a recipe of its own in version 0.1.

    BASE-tableN-ROW is now the row of this name, or of one that ends in -ROW, in the experiment
    whose base begins with BASE. The rows of two names are called by their laptop's heads, or sums.
    """
    old = re.fullmatch(r"(.+)-table(\d)-(.+)", name)
    for stem, path in shipped_experiments().items() if old else ():
        experiment = load_experiment(path)
        if stem.endswith(f"-table{old[2]}") and (experiment.base or "").startswith(old[1]):
            rows = [r.name for r in experiment.rows if f"-{r.name}".endswith(f"-{old[3]}")]
            return f"it is {stem}:{rows[0]} now" if rows else f"it is a row of {stem} now"
    return None


def load_recipe(recipe: str | Path, overrides: Sequence[str] = ()) -> Recipe:
    """Read and check a recipe.

    recipe     a name or path as `find_recipe` takes it
    overrides  key.sub=value, each of which replaces one entry; a mapping replaces what it names

    Raises UserError with one line that names the key, its value and what would be valid.
    """
    inherited, stated = read_layers(recipe)
    return resolve(inherited, [*stated, parse_overrides(overrides)], str(recipe))


def load_row(
    experiment: Experiment, row: Row, overrides: Sequence[str] = (), *, laptop: bool = True
) -> Recipe:
    """Return the recipe of an experiment's row, on a laptop or else at the size of the paper.

    Overrides are for all rows, so those that have no effect in this one are not refused. Raises
    UserError that names the row.
    """
    try:
        inherited, stated = row_layers(experiment, row, laptop and experiment.laptop is not None)
        return resolve(inherited, stated, "its recipe", overrides)
    except UserError as error:
        raise UserError(f"row {row.name}: {error}") from None


def load_experiment(path: Path) -> Experiment:
    """Read and check an experiment. Raises UserError with one line that names key and value."""
    return validate(Experiment, read_yaml(path), f"{path}: ", "the experiment")


# layers ------------------------------------------------------------------------------------------


def read_layers(recipe: str | Path, above: tuple[Path, ...] = ()) -> tuple[list[Tree], list[Tree]]:
    """Return the layers that a recipe inherits, lowest first, and those that it states itself."""
    path = recipe if isinstance(recipe, Path) else find_recipe(recipe)
    if isinstance(recipe, str) and not Path(recipe).is_file() and ":" in recipe:
        experiment = load_experiment(path)
        return row_layers(experiment, experiment.find_row(recipe.partition(":")[2]), laptop=False)
    tree = read_yaml(path) or {}
    if not isinstance(tree, dict):
        raise UserError(f"{path}: a recipe is a mapping with data, model, train and decode")
    if "base" not in tree:
        # a resolved recipe writes out every entry, also those without effect
        resolved = tree.keys() >= {field.name for field in fields(Recipe)}
        shipped = path.parent == RECIPES
        return ([tree], []) if resolved or shipped else ([], [tree])
    base = tree.pop("base")
    if not isinstance(base, str):
        raise UserError(f"{path}: base {base!r} is not the name of a recipe")
    beside = (path.parent / f"{base}.yaml").resolve()
    below = base
    if beside.is_file() and beside != path.resolve():
        below = beside
    if find_file(below) in (*above, path.resolve()):
        raise UserError(f"{path}: base {base} leads back to it")
    return base_layers(below, (*above, path.resolve())), [tree]


def find_file(recipe: str | Path) -> Path:
    return (recipe if isinstance(recipe, Path) else find_recipe(recipe)).resolve()


def base_layers(recipe: str | Path, above: tuple[Path, ...] = ()) -> list[Tree]:
    """Return all layers of a recipe that another builds on, but for what was published of it."""
    inherited, stated = read_layers(recipe, above)
    return [{k: v for k, v in tree.items() if k != "published"} for tree in inherited + stated]


def row_layers(experiment: Experiment, row: Row, laptop: bool) -> tuple[list[Tree], list[Tree]]:
    """Return the layers that a row inherits, and those that it states itself."""
    if laptop:
        version, stated = experiment.laptop, [row.changes, row.laptop]
    elif row.recipe is not None:
        inherited, stated = read_layers(row.recipe)
        return [*inherited, *stated, experiment.changes], [row.changes]
    else:
        version, stated = experiment, [row.changes]
    inherited = [*base_layers(version.base), version.changes]
    if not laptop and row.published is not None:
        printed = {"source": experiment.source, "row": row.row or row.name, "value": row.published}
        printed |= {"metric": experiment.metric, "parameters": row.parameters}
        inherited.append({"published": [printed]})
    return inherited, stated


def parse_overrides(overrides: Sequence[str]) -> Tree:
    """Return the layer that key.sub=value texts state together."""
    layer = {}
    for override in overrides:
        key, equals, text = override.partition("=")
        if not equals:
            raise UserError(f"override {override!r}: write it as key=value, as train.lr=5e-4")
        tree = parse_yaml(text, f"override {override!r}")
        for part in reversed(key.split(".")):
            tree = {part: tree}
        layer = merge(layer, tree)
    return layer


def merge(base: Any, tree: Any) -> Any:
    """Return the entries of `tree`, and those of `base` that it has not.

    A model of another architecture takes nothing from its base.
    """
    if not isinstance(base, dict) or not isinstance(tree, dict):
        return tree
    if tree.get("architecture") not in (None, base.get("architecture", ModelConfig.architecture)):
        return tree
    return base | {key: merge(base.get(key), value) for key, value in tree.items()}


def merge_layers(layers: Sequence[Tree]) -> Tree:
    """Return what layers amount to, lowest first.

    `kernel`, as version 0.1 wrote a stack's sizes, becomes the width, reach or window that the
    mixers take it for which are known where it is written.
    """
    tree = {}
    for layer in layers:
        tree = merge(tree, deepcopy(layer))
        for stack, _ in find_stacks(tree):
            if "kernel" in stack:
                kernel = stack.pop("kernel")
                if tree["model"].get("architecture") == "convs2s":
                    stack["width"] = kernel
                else:
                    stack |= {size: taken_by(stack, size, kernel) for size in SIZES}
    return tree


def find_stacks(tree: Tree) -> list[tuple[Tree, str]]:
    """Return the mappings that describe encoder and decoder, and their keys in the recipe."""
    model = tree.get("model")
    sides = ("encoder", "decoder") if isinstance(model, dict) else ()
    return [(model[s], f"model.{s}") for s in sides if isinstance(model.get(s), dict)]


def taken_by(stack: Tree, size: str, value: Any) -> Any:
    """Return the entries of `value` for the layers whose mixer takes this size; null elsewhere."""

    def takes(mixer: Any) -> bool:
        return isinstance(mixer, str) and mixer in MIXERS and MIXERS[mixer].size == size

    mixers = stack.get("mixer", StackConfig.mixer)
    if not isinstance(mixers, list):
        return value if takes(mixers) else None
    if not isinstance(value, list):
        return value if any(map(takes, mixers)) else None
    if len(value) != len(mixers):
        return value  # which is an error, and said to be one
    taken = [v if takes(mixer) else None for v, mixer in zip(value, mixers, strict=True)]
    return taken if any(v is not None for v in taken) else None


def flatten(tree: Tree, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the entries of nested mappings as (key.sub, value)."""
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


# checks ------------------------------------------------------------------------------------------


def resolve(
    inherited: list[Tree], stated: list[Tree], where: str, for_all: Sequence[str] = ()
) -> Recipe:
    """Return the recipe that layers amount to; `where` begins the error.

    stated   layers of this recipe alone: an entry of theirs that nothing reads is an error
    for_all  overrides on top of them that other recipes share

    A stack keeps no inherited size that none of its mixers takes: where attention replaces a
    convolution, the convolution's width goes.
    """
    tree = merge_layers([*inherited, *stated, parse_overrides(for_all)])
    keys = {key for layer in stated for key, _ in flatten(layer)}
    for stack, key in find_stacks(tree):
        for size in SIZES:
            stated_here = any(f"{k}.".startswith(f"{key}.{size}.") for k in keys)
            if size in stack and not stated_here and "mixer" in stack:
                stack[size] = taken_by(stack, size, stack[size])
    recipe = validate_recipe(tree, where)
    ours, unsaid = dict(flatten(asdict(recipe))), default_entries(recipe)
    for key, reason in find_unread(recipe).items():
        if key in keys and ours[key] != unsaid[key]:
            raise UserError(f"{where}: {key} {ours[key]} has no effect: {reason}; leave it out")
    return recipe


def default_entries(recipe: Recipe) -> dict[str, Any]:
    """Return what the entries of each section are where a recipe says nothing."""
    sections = ("data", "model", "train", "decode")
    return dict(flatten({name: asdict(type(getattr(recipe, name))()) for name in sections}))


def validate_recipe(tree: Tree, where: str) -> Recipe:
    """Return the recipe of nested mappings; `where` begins the error."""
    schema = {field.name: field.type for field in fields(Recipe)}
    schema["model"] = find_model(tree.get("model"), where)
    if unknown := [key for key in tree if key not in schema]:
        hint = nearest(str(unknown[0]), schema, "there are")
        raise UserError(f"{where}: unknown key {unknown[0]}; {hint}")
    sections = {
        name: validate(schema[name], value, f"{where}: ", name) for name, value in tree.items()
    }
    try:
        return Recipe(**sections)
    except ValidationError as error:
        raise UserError(f"{where}: {explain(error.errors()[0], Recipe, '')}") from None


def find_model(tree: Any, where: str) -> type:
    """Return the class of the section `model`, by its architecture."""
    kind = tree.get("architecture") if isinstance(tree, dict) else None
    if kind is None:
        return ModelConfig
    if not isinstance(kind, str) or kind not in MODELS:
        hint = nearest(str(kind), MODELS, "there are")
        raise UserError(f"{where}: model.architecture {kind!r} is not known; {hint}")
    return MODELS[kind]


def validate(schema: Any, tree: Any, where: str, name: str) -> Any:
    """Return the value of a type that YAML describes.

    Raises UserError: `where`, then the entry of the section `name` that is wrong, and how.
    """
    try:
        return TypeAdapter(schema).validate_python(tree)
    except ValidationError as error:
        problem = max(error.errors(), key=lambda each: len(each["loc"]))  # the most specific
        raise UserError(f"{where}{explain(problem, schema, name)}") from None


BOUNDS = {
    "greater_than": ("above", "gt"),
    "greater_than_equal": ("at least", "ge"),
    "less_than": ("below", "lt"),
    "less_than_equal": ("at most", "le"),
}


def explain(error: Any, schema: Any, name: str) -> str:
    """Return one of pydantic's errors as `key value: what is wrong with it`."""
    level, known, keys = schema, [], [name] if name in SECTIONS else []
    for part in error["loc"]:
        if isinstance(part, int):
            level = next((each for each in get_args(level) if is_dataclass(each)), None)
        elif is_dataclass(level):
            types = {field.name: field.type for field in fields(level)}
            known, level = list(types), types.get(part)
        else:
            break  # what follows names the types that were tried
        keys.append(str(part))
    key = ".".join(keys) or name
    if error["type"] == "unexpected_keyword_argument":
        return f"unknown key {key}; {nearest(keys[-1], known, 'there are')}"
    message = error["msg"].removeprefix("Value error, ")
    if error["type"] == "value_error":  # ours, which names the value
        return f"{key}: {message}" if key else message
    if error["type"] == "missing" and isinstance(error["loc"][-1], str):
        return f"{key}: {message}"
    if isinstance(error["input"], dict) and level not in (None, dict):
        return f"{key} has no entries"
    value = repr(error["input"])
    value = value if len(value) <= 60 else f"{value[:57]}..."
    if error["type"] in BOUNDS:
        word, bound = BOUNDS[error["type"]]
        return f"{key} {value} must be {word} {error['ctx'][bound]:,.10g}"
    return f"{key} {value}: {message}"


SECTIONS = {field.name for field in fields(Recipe)}


# what is written ---------------------------------------------------------------------------------


def dump_recipe(recipe: Recipe) -> str:
    """Return the YAML of a resolved recipe, every key written out."""
    import yaml

    # lists, since YAML has no tuples
    return yaml.safe_dump(lists(asdict(recipe)), sort_keys=False)


def lists(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: lists(v) for key, v in value.items()}
    return [lists(v) for v in value] if isinstance(value, list | tuple) else value


MAY_CHANGE = ("published", "decode.", "profile", "train.accumulate", "train.timeout")
"""what may change when a run goes on; accumulate only with the number of processes"""


def differences(ours: Recipe, theirs: Recipe, free: tuple[str, ...] = MAY_CHANGE) -> list[str]:
    """Return the entries that differ and do not begin with one of `free`.

    Each is worded as `train.lr 0.001, not 0.0005`.
    """
    a, b = (dict(flatten(asdict(recipe))) for recipe in (ours, theirs))
    both = ((k, a.get(k), b.get(k)) for k in a | b if not k.startswith(free))
    return [f"{k} {here}, not {there}" for k, here, there in both if here != there]
