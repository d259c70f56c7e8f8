"""The exception for user errors, and the hint for a misspelt name."""

import difflib
import errno
import re
from collections.abc import Iterable


class UserError(ValueError):
    """An error in the user's input (a file, a recipe, an option), reported in one line.

    The line names the value and how to fix it. The command line prints it without a traceback
    and exits with code 2; in a program it is an ordinary `ValueError`.
    """


def nearest(name: str, known: Iterable[str], otherwise: str) -> str:
    """Return `did you mean X?` for the nearest known name, or `otherwise` and all known names."""
    known = list(known)
    near = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {near[0]}?" if near else f"{otherwise} {', '.join(known)}"


def memory_error(error: BaseException) -> str | None:
    """Return in one line that memory has run out, if that is what an error says, else None.

    Python, PyTorch on a CPU, PyTorch on a GPU, and the dynamic linker each say it in their own way.
    """
    known = "out of memory", "can't allocate memory", "cannot allocate memory", "failed to map"
    for sentence in re.split(r"\. |\n", str(error)):
        if any(words in sentence.lower() for words in known):
            return f"not enough memory ({sentence.strip()})"
    full = isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM
    return "not enough memory" if full else None
