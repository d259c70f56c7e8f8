"""What argparse lacks: one-line errors, defaults in its help, negative numbers, overrides."""

import argparse
import re
import sys
from collections.abc import Sequence
from itertools import product
from typing import NoReturn

from dynconv.errors import UserError, did_you_mean, name_hint, quoted, shorten


class Formatter(argparse.HelpFormatter):
    """Appends the default of each option that has one to its help."""

    def _get_help_string(self, action) -> str:
        default = action.default
        if not action.option_strings or default in (None, False, "", argparse.SUPPRESS):
            return action.help or ""
        values = default if isinstance(default, list) else [default]
        return f"{action.help} (default: {' '.join(map(str, values))})"


class Parser(argparse.ArgumentParser):
    """A parser that raises errors instead of exiting, including errors while it prints help."""

    def __init__(self, **options) -> None:
        super().__init__(exit_on_error=False, formatter_class=Formatter, **options)

    def error(self, message) -> NoReturn:
        super().error(f"{message}: {self.prog} --help")

    def _check_value(self, action, value) -> None:
        """Refuse what is not a choice, and list the nearest choices instead of all."""
        if action.choices is not None and value not in action.choices:
            hint = name_hint(str(value), map(str, action.choices), "choose from")
            raise argparse.ArgumentError(action, f"{quoted(value)} is not a valid choice; {hint}")

    def _print_message(self, message, file=None) -> None:
        print(message, end="", file=file or sys.stderr)


def unknown_arguments(rest: Sequence[str], command: argparse.ArgumentParser) -> str:
    """Report the arguments that a command does not know, with a hint at what may be meant."""
    known = [name for action in command._actions for name in action.option_strings]
    flag = rest[0].partition("=")[0]
    near = did_you_mean(flag, known)
    if example := command.get_default("example"):
        named = entries_named(flag.lstrip("-").replace("-", "_"))
        if keys := [key for key in named if key.startswith(command.get_default("section"))]:
            near = "entries of the recipe have no dashes: " + " or ".join(f"{k}=..." for k in keys)
        elif near is None:
            near = f"entries of the recipe have no dashes: {example}"
    said = f"unrecognized arguments: {shorten(' '.join(rest))}"
    return f"{said}; {near}" if near else said


def entries_named(name: str) -> list[str]:
    """Return the keys of a recipe that a name may stand for, in full or without its sections."""
    from dynconv.config import Recipe
    from dynconv.schema_errors import entry_keys

    return [key for key in dict.fromkeys(entry_keys(Recipe)) if f".{key}".endswith(f".{name}")]


def refuse_repeated(overrides: Sequence[str]) -> None:
    """Raise UserError if two overrides replace the same entry."""
    from dynconv.config.load import override_keys
    from dynconv.config.tree import keys_overlap

    seen: dict[str, str] = {}
    for override in overrides:
        keys = dict.fromkeys(override_keys([override]), override)
        for key, other in product(keys, seen):
            if keys_overlap(key, other):
                twice = f"{shorten(seen[other])} and {shorten(override)}"
                raise UserError(f"{twice} replace the same entry: keep one")
        seen |= keys


def join_negative(arguments: Sequence[str]) -> list[str]:
    """Join `--lenpen -inf` to `--lenpen=-inf`: argparse would take -inf for an option."""
    joined: list[str] = []
    for text in arguments:
        if re.match(r"-(\d|\.|inf|nan)", text) and joined and re.match(r"--\w[^=]*$", joined[-1]):
            joined[-1] += f"={text}"
        else:
            joined.append(text)
    return joined
