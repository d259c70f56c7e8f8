"""The command line: `dynconv`, or `python -m dynconv`. Each command has its own module here.

A command's module contains its parser and a function that calls the code that does the work. Only
the chosen command imports the packages it needs, so `--help` answers at once.
"""

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from signal import SIGINT, Signals

from dynconv import __version__
from dynconv.cli.interrupt import end_quietly_during_imports
from dynconv.cli.missing_package import explain_missing
from dynconv.cli.parser import Parser, join_negative, refuse_repeated, unknown_arguments
from dynconv.cli.stdout import discard_stdout, prepare_stdout
from dynconv.cpu_memory import keep_cpu_memory
from dynconv.errors import UserError, out_of_memory_message, shorten, warn

COMMANDS = (
    "doctor", "data", "train", "tune", "experiment", "estimate", "plot", "translate", "generate",
    "evaluate", "export", "score", "bench",
)  # fmt: skip
"""the modules here that have a command, in the order of `--help`"""
BY_SIGNAL = 128
"""added to the number of the signal that ended a command, it is the exit code, as in shells"""
MEMORY_REMEDY = "lower --beam or the recipe's batch_tokens, or use a smaller model, text or shape"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    0        success
    1        stdout cannot be written, memory has run out, or a benchmark finds something wrong
    2        a mistake in the command or in its files, a file that cannot be read or written, or a
             missing package
    128 + n  signal n ended it
    """
    keep_cpu_memory()
    end_quietly_during_imports()
    try:
        prepare_stdout()
        try:
            return execute(arguments)
        finally:
            sys.stdout.flush()  # here its errors are still handled
    except UserError as error:
        return fail(str(error), 2)
    except KeyboardInterrupt:
        return fail("interrupted", BY_SIGNAL + SIGINT)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("dynconv"):
            raise
        return fail(explain_missing(error.name), 2)
    except UnicodeEncodeError as error:  # a locale without umlauts
        where = ascii(error.object[max(error.start - 20, 0) : error.end + 20])
        return fail(f"{where} cannot be encoded in this locale: set PYTHONUTF8=1", 2)
    except BrokenPipeError:  # `| head -1` has read enough
        discard_stdout()
        return BY_SIGNAL + 13  # SIGPIPE, a name that Windows lacks
    except (MemoryError, OSError, RuntimeError, ImportError) as error:
        if reason := out_of_memory_message(error):
            return fail(f"{reason}: {MEMORY_REMEDY}", 1)
        if not isinstance(error, OSError):
            raise
        discard_stdout()
        # The disk is full, or writing is not allowed.
        where, code = (error.filename, 2) if error.filename else ("output", 1)
        return fail(f"{where}: {error.strerror or error}", code)


def execute(arguments: Sequence[str] | None) -> int:
    """Parse the arguments, run the command and return its exit code."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    if sys.getfilesystemencoding() != "utf-8":  # then letters may have become surrogates
        " ".join(arguments).encode()  # which raises a UnicodeEncodeError
    top = make_parser()
    try:
        options, rest = top.parse_known_args(join_negative(arguments))
    except argparse.ArgumentError as error:
        if error.argument_name is None:  # a missing argument
            top.error(str(error))
        raise UserError(shorten(str(error), 300)) from None
    if hasattr(options, "overrides"):  # argparse takes no positional that follows an option
        options.overrides += [text for text in rest if not text.startswith("-")]
        rest = [text for text in rest if text.startswith("-")]
    if rest:
        options.parser.error(unknown_arguments(rest, options.parser))
    if overrides := getattr(options, "overrides", []):
        refuse_repeated(overrides)
    result = options.call(options)
    return BY_SIGNAL + result if isinstance(result, Signals) else result or 0


def fail(message: str, code: int) -> int:
    """Print a line to stderr and return the exit code."""
    warn(message)
    return code


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands; the parsed options' `call` runs the chosen one."""
    top = Parser(
        prog="dynconv",
        description="Train, evaluate and benchmark convolutional alternatives to self-attention.",
    )
    top.add_argument("--version", action="version", version=f"dynconv {__version__}")
    subparsers = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name in COMMANDS:
        import_module(f"{__name__}.{name}").add_parser(subparsers)
    return top
