"""Lets a package import its names when they are first used, because PyTorch takes long to load."""

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any


def import_lazily(
    package: str, exports: Mapping[str, Sequence[str]], modules: Sequence[str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a package that imports a name when it is first used.

    exports  names by the module that defines them
    modules  modules that are names of the package themselves
    """
    module_of = {name: module for module, names in exports.items() for name in names}

    def import_name(name: str) -> Any:
        if name in modules:
            return import_module(f"{package}.{name}")
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{module_of[name]}"), name)

    return import_name, lambda: sorted([*module_of, *modules])
