"""Standard output: its encoding, and what happens if it is closed or full."""

import io
import os
import sys
from contextlib import suppress

from dynconv.errors import UserError


def prepare_stdout() -> None:
    """Make stdout escape characters that its encoding lacks.

    Raises UserError if stdout is closed.
    """
    if sys.stdout is None:  # the next file opened would become stdout
        raise UserError("standard output is closed: send it to a file, or to /dev/null")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def write_utf8() -> None:
    """Make stdout write UTF-8 and plain line ends in every locale, because its text may be kept."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", errors="strict", newline="\n")


def discard_stdout() -> None:
    """Discard what stdout could not write, or Python would try again at exit and print an error."""
    with suppress(OSError, ValueError):  # stdout may not be a file
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
