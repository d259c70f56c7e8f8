"""Defines the exception for user errors, helpers that word its message, and warnings."""

import difflib
import errno
import re
import sys
from collections.abc import Iterable
from typing import Any


class UserError(ValueError):
    """Reports an error in the user's input (a file, a recipe, an option) in one line.

    The line names the value and how to fix it. The command line prints it without a traceback
    and exits with code 2; in a program it is an ordinary `ValueError`.
    """


class NotFiniteOutputError(UserError):
    """Reports a model whose outputs are not finite."""

    def __init__(self) -> None:
        super().__init__("the model's outputs are not finite: it has diverged in training")


def warn(message: str) -> None:
    """Print a line to stderr that begins with `dynconv:`."""
    print(f"dynconv: {message}", file=sys.stderr)


MAX_QUOTED = 100
"""maximum number of characters of a quoted value"""


def quoted(value: Any) -> str:
    """Return `repr(value)`, truncated if it is long."""
    return shorten(repr(value[: 2 * MAX_QUOTED] if isinstance(value, str) else value))


def shorten(text: str, longest: int = MAX_QUOTED) -> str:
    """Return text, truncated if it is long."""
    return text if len(text) <= longest else f"{text[:longest]}..."


def did_you_mean(name: str, known: Iterable[str]) -> str | None:
    """Return `did you mean X?` for the nearest known name, or None if none is near.

    The dashes of options and the case of letters do not count.
    """
    names = {each.lower().lstrip("-"): each for each in known}
    near = difflib.get_close_matches(name.lower().lstrip("-"), names, n=1, cutoff=0.65)
    return f"did you mean {names[near[0]]}?" if near else None


def name_hint(name: str, known: Iterable[str], otherwise: str) -> str:
    """Return `did you mean X?` for the nearest known name, or `otherwise` and all known names."""
    known = list(known)
    return did_you_mean(name, known) or f"{otherwise} {', '.join(known)}"


def out_of_memory_message(error: BaseException) -> str | None:
    """Return one line that says that memory has run out, or None for any other error.

    Python, PyTorch on a CPU, PyTorch on a GPU, and the dynamic linker each word it differently.
    """
    known = "out of memory", "can't allocate memory", "cannot allocate memory", "failed to map"
    for sentence in re.split(r"\. |\n", str(error)):
        if any(words in sentence.lower() for words in known):
            return f"not enough memory ({sentence.strip()})"
    full = isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM
    return "not enough memory" if full else None
