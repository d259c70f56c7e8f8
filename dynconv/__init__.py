"""Convolutions that compete with self-attention, from the equation to training."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

__version__ = "0.2.0.dev0"


def import_lazily(
    package: str, exports: dict[str, list[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a package that imports a name when it is first used.

    exports  names by the module that defines them
    """
    module_of = {name: module for module, names in exports.items() for name in names}

    def import_name(name: str) -> Any:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{module_of[name]}"), name)

    return import_name, lambda: sorted(module_of)
