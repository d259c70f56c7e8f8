"""Caches facts about this machine and lets torch.compile treat them as constants."""

from collections.abc import Callable
from functools import cache, wraps
from typing import Any


def constant(function: Callable) -> Callable:
    """Cache a function's results, and let torch.compile treat them as constants.

    The mark is what torch.compiler.assume_constant_result sets; calling that would import all of
    torch._dynamo, which takes longer than importing torch itself.
    """
    cached = cache(function)

    @wraps(function)
    def lookup(*arguments):
        return cached(*arguments)

    marked: Any = lookup
    marked._dynamo_marked_constant = True
    marked.cache_clear = cached.cache_clear
    return marked
