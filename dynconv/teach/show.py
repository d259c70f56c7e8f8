"""Prints package code in a lesson: the printed source is then a checked output."""

import inspect
from collections.abc import Callable


def show(function: Callable) -> None:
    """Print the source of a function or class."""
    print(inspect.getsource(function).rstrip())
