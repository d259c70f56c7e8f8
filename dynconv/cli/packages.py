"""Which package to install for a module that cannot be imported."""

import re
import sys
from importlib import metadata

PACKAGES = {"cupy": "cupy-cuda13x", "yaml": "pyyaml"}
"""packages by module, where the names differ in more than case and hyphens"""


def explain_missing(module: str) -> str:
    """Say in one line that a module is missing, and how to get it."""
    top = module.partition(".")[0]
    if top in sys.stdlib_module_names:
        return f"this Python was built without its own module {top}: install a complete one"
    package = PACKAGES.get(top, top)
    for requirement in metadata.requires("dynconv") or ():
        name = re.match(r"[\w.-]+", requirement)[0]
        if _normalized(name) == _normalized(package):
            extra = re.search(r"extra == ['\"](\w+)", requirement)
            needed = f"'dynconv[{extra[1]}]'" if extra else name
            return f"{top} is not installed: pip install {needed}"
    return (
        f"{top} is not installed, although a package that dynconv requires should have brought "
        "it: pip install --force-reinstall dynconv"
    )


def _normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
