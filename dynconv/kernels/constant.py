"""Caches facts about this machine and lets torch.compile treat them as constants."""

from collections.abc import Callable
from functools import cache, wraps
from typing import Any


def cached_constant(function: Callable) -> Callable:
    """Cache a function's results, and let torch.compile treat them as constants.

    It sets the same mark as torch.compiler.assume_constant_result, which would import
    torch._dynamo: that takes longer than importing torch itself.
    """
    cached = cache(function)

    @wraps(function)
    def lookup(*arguments):
        return cached(*arguments)

    marked: Any = lookup
    marked._dynamo_marked_constant = True
    marked.cache_clear = cached.cache_clear
    return marked
