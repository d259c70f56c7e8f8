"""What several commands share: groups of options, checked numbers, and loading a trained model."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dynconv.cli.parser import refuse_repeated

if TYPE_CHECKING:
    from dynconv.train import TrainedModel


def add_command(subparsers, name: str, run: Callable) -> argparse.ArgumentParser:
    """Add the command `name`, which calls `run(options)`, and return its parser.

    The docstring of `run` becomes its help text.
    """
    text = " ".join((run.__doc__ or "").split())
    parser = subparsers.add_parser(name, help=text.replace("%", "%%"), description=text)
    parser.set_defaults(call=run, parser=parser)
    return parser


class StoreList(argparse.Action):
    """Stores a list of arguments, or one text with commas, as in commands of version 0.1."""

    def __call__(self, parser, namespace, values, *_) -> None:
        setattr(namespace, self.dest, [item for each in values for item in each.split(",")])


class ShowList(argparse.Action):
    """An option that prints a table of `dynconv.cli.listing` instead of running the command.

    `const` is the name of the function that returns the table.
    """

    def __call__(self, parser, namespace, *_) -> None:
        for action in parser._actions:
            action.required = False
        namespace.call = self.show

    def show(self, options) -> None:
        """Print the table.

        Raises UserError if another argument is given, because it has no effect.
        """
        from dynconv.cli import listing
        from dynconv.errors import UserError

        for action in options.parser._actions:
            if (value := getattr(options, action.dest, action.default)) != action.default:
                raise UserError(
                    f"{self.option_strings[0]} shows all, and {action.dest} {value} has no effect: "
                    "leave out one of them"
                )
        print(getattr(listing, self.const)())


def add_recipe(parser: argparse.ArgumentParser) -> None:
    """Add the arguments RECIPE and key=value."""
    parser.add_argument("recipe", help="a shipped recipe's name, EXPERIMENT:ROW, or a YAML file")
    add_overrides(parser, "replace an entry", "train.lr=5e-4")


def add_overrides(
    parser: argparse.ArgumentParser, help_text: str, example: str, section: str = ""
) -> None:
    """Add the positional arguments key=value.

    example  for the help, and for the error of an unknown option
    section  the only one whose entries can be replaced; "" for all
    """
    text = f"{help_text}: {example}"
    parser.add_argument("overrides", nargs="*", default=[], metavar="key=value", help=text)
    parser.set_defaults(example=example, section=section)


def add_decoding(parser: argparse.ArgumentParser) -> None:
    """Add a run directory, and the arguments that change how its model decodes."""
    add_run(parser)
    text = "replace an entry of the recipe's section decode"
    add_overrides(parser, text, "decode.min_tokens=3", "decode")
    parser.add_argument("--beam", type=number_type("Beam"), help="short for decode.beam=BEAM")
    parser.add_argument(
        "--lenpen", type=number_type("LengthPenalty"), help="short for decode.lenpen=LENPEN"
    )


def add_run(parser: argparse.ArgumentParser) -> None:
    """Add a run directory and which of its checkpoints to use."""
    parser.add_argument("run", type=parse_path, metavar="RUN")
    parser.add_argument(
        "--checkpoint",
        default="best",
        metavar="NAME",
        help="best; last, which is the average if the run made one; or a name in RUN/checkpoints",
    )


def load_trained(options, task: type | None = None) -> "TrainedModel":
    """Load the model that the options of `add_run` name, to decode as `add_decoding`'s say.

    Raises UserError if the model is trained for another task, or if an option has no effect on it.
    """
    from dynconv.tasks.task import require_task
    from dynconv.train import load_model

    given = {name: getattr(options, name, None) for name in ("beam", "lenpen")}
    short = [f"decode.{name}={value}" for name, value in given.items() if value is not None]
    overrides = [*getattr(options, "overrides", []), *short]
    refuse_repeated(overrides)
    trained = load_model(options.run, options.checkpoint, overrides)
    if task is not None:
        require_task(trained.task, task, options.run)
    return trained


def add_output(parser: argparse.ArgumentParser, default: str) -> None:
    """Add the file to which a command writes its measurements."""
    where = f"JSON (default: {default}; outside a checkout, its name without the folder)"
    parser.add_argument("--output", type=parse_path, metavar="FILE", help=where)


def parse_path(text: str) -> Path:
    """Parse the name of a file or directory; an empty one would be the working directory."""
    if not text:
        raise argparse.ArgumentTypeError("'' is empty: name a file or directory, or leave it out")
    return Path(text)


def keywords_of(options) -> dict[str, Any]:
    """Return the arguments of a command, by the names of the parameters that take them."""
    ours = ("command", "call", "parser", "example", "section")  # set by the functions above
    return {name: value for name, value in vars(options).items() if name not in ours}


def say(text: str) -> None:
    """Print a line and flush it, so that a pipe also gets it at once."""
    print(text, flush=True)


def number_type(schema: str) -> Callable[[str], float]:
    """Return a function that parses a number of the type `schema` in `dynconv.schema`.

    The type is imported only when the option is given, because --help must stay quick.
    """

    def parse(text: str) -> float:
        from dynconv import schema as types
        from dynconv.errors import UserError
        from dynconv.yaml12 import parse_scalar

        try:
            return types.validated(getattr(types, schema), parse_scalar(text), "")
        except UserError as error:
            raise argparse.ArgumentTypeError(str(error).removeprefix(": ")) from None

    parse.schema = schema  # type: ignore[attr-defined]
    return parse


positive_int = number_type("PositiveInt")
