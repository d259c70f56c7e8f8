"""The checkout of the repository, which contains the lessons and the book; a wheel does not."""

import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

from dynconv import paths
from dynconv.errors import UserError


def require_checkout() -> Path:
    """Return the root of the repository's checkout.

    Raises UserError if dynconv runs without one.
    """
    root = paths.find_checkout()
    if root is None:
        raise UserError(
            f"no lessons and no book in {paths.PACKAGE.parent}: an installed package does not "
            "contain them; clone the repository and pip install -e it"
        )
    return root


def repository_address(root: Path) -> str | None:
    """Return the repository's address from pyproject.toml, if it names one."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return project.get("urls", {}).get("Repository")


def run_tool(main: Callable[[], None]) -> None:
    """Run a tool; it ends with one line on stderr and exit code 1 if it raises UserError."""
    try:
        main()
    except UserError as error:
        sys.exit(f"dynconv: {error}")
