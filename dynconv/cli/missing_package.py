"""Says which package to install for a module that cannot be imported."""

import re
import sys
from importlib import metadata

PACKAGES = {"cupy": "cupy-cuda13x", "yaml": "pyyaml"}
"""names of packages that differ from the module's in more than case and hyphens, keyed by module"""
UNIX_ONLY = "fcntl", "resource"
"""standard modules that dynconv imports and Windows lacks"""


def explain_missing(module: str) -> str:
    """Say in one line that a module is missing, and how to get it."""
    top = module.partition(".")[0]
    if top in UNIX_ONLY:
        return f"this needs Python's module {top}, which Windows lacks: use WSL"
    if top in sys.stdlib_module_names:
        return f"this Python was built without its own module {top}: install a complete one"
    return f"{top} is not installed: {how_to_install(top)}"


def how_to_install(module: str) -> str:
    """Return the command that installs a module: its package, or the extra that contains it.

    A module that is not a declared dependency is part of one, so all are reinstalled.
    """
    package = canonical_name(PACKAGES.get(module, module))
    extras = []
    for name, extra in list_requirements():
        if canonical_name(name) == package:
            if extra is None:
                return f"pip install {name}"
            extras.append(extra)
    if extras:  # a wheel's `test` also lists what is in the extras that it includes
        chosen = next((name for name in extras if name != "test"), "test")
        return f"pip install 'dynconv[{chosen}]'"
    return "pip install --force-reinstall dynconv"


def list_requirements() -> list[tuple[str, str | None]]:
    """Return the packages that dynconv declares, each with its extra; None if always needed.

    A checkout that is not installed declares none.
    """
    parts = re.compile(r"([\w.-]+)(?:.*extra == ['\"](\w+))?")
    try:
        declared = metadata.requires("dynconv") or []
    except metadata.PackageNotFoundError:
        declared = []
    found = map(parts.match, declared)
    return [(match[1], match[2]) for match in found if match]


def installed_version(package: str) -> str | None:
    """Return the version of a package, or of another one with its module, or None."""
    module = next((name for name, known in PACKAGES.items() if known == package), package)
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        others = metadata.packages_distributions().get(module)
        return metadata.version(others[0]) if others else None


def canonical_name(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
