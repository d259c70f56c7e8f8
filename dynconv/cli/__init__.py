"""The command line: `dynconv`, or `python -m dynconv`. Each command has a module of its own here.

A command's module contains both its parser and what the command does. Only the chosen
command imports the packages it needs, so `--help` answers at once.
"""

import argparse
import sys
from collections.abc import Sequence

from dynconv.cli import (
    ablate,
    bench,
    data,
    doctor,
    evaluate,
    generate,
    plan,
    plot,
    score,
    train,
    translate,
)
from dynconv.cli.packages import explain_missing
from dynconv.cli.process import tune_cpu
from dynconv.errors import UserError

COMMANDS = doctor, data, train, ablate, plan, plot, translate, generate, evaluate, score, bench
INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    The code is 0 for success, 2 for a mistake of the user, 128 + n after signal n, and 1 when the
    system refuses (a full disk) or `bench kernels` finds a wrong kernel.
    """
    tune_cpu()
    top = parser()
    try:
        options, rest = top.parse_known_args(arguments)
        if hasattr(options, "overrides"):  # argparse takes no positional that follows an option
            options.overrides += [text for text in rest if not text.startswith("-")]
            rest = [text for text in rest if text.startswith("-")]
        if rest:
            top.error(f"unrecognized arguments: {' '.join(rest)}")
        return options.run(options) or 0
    except UserError as error:
        return fail(str(error), 2)
    except KeyboardInterrupt:
        return fail("interrupted", INTERRUPTED)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("dynconv"):
            raise
        return fail(explain_missing(error.name), 2)
    except OSError as error:  # a full disk, a closed pipe, no permission
        return fail(f"{error.filename or 'output'}: {error.strerror or error}", 1)


def fail(message: str, code: int) -> int:
    """Print a line to stderr and return the exit code."""
    print(f"dynconv: {message}", file=sys.stderr)
    return code


def parser() -> argparse.ArgumentParser:
    """Return the parser of all commands; the parsed options' `run` is the function to call."""
    top = argparse.ArgumentParser(
        prog="dynconv",
        description="Convolutions that compete with self-attention: train, try, score.",
    )
    subparsers = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command in COMMANDS:
        command.add_parser(subparsers)
    return top
