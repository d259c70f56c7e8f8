"""Builds the book from the stored notebooks. A warning of the builder is an error.

python -m dynconv.teach.book [--out DIR] [--links]     pages in DIR/_build/html (DIR: book)

With --links it visits every address that the book names instead, which takes a network. Where
pyproject.toml names the repository's address, pages have buttons for it, for Binder and for Colab.
"""

import argparse
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import yaml

from dynconv.errors import UserError
from dynconv.teach.checkout import repository_address, require_checkout, run_tool


def main() -> None:
    """Build the book into `--out`. Raises UserError if that is not possible here."""
    root = require_checkout()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=root / "book")
    parser.add_argument("--links", action="store_true", help="check the book's links instead")
    arguments = parser.parse_args()
    out = arguments.out.resolve()
    try:
        version = metadata.version("jupyter-book")
    except metadata.PackageNotFoundError:
        raise UserError("the book needs Jupyter Book: pip install 'dynconv[book]'") from None
    if int(version.split(".")[0]) != 1:
        raise UserError(f"Jupyter Book {version} cannot build it: pip install 'jupyter-book<2'")
    # Beside the original, because paths in it are relative.
    config = root / "book" / "_config.part.yml"
    config.write_text(yaml.safe_dump(read_config(root)), encoding="utf-8")
    strict = ["-W", "-n", "--keep-going", "--all"]
    if arguments.links:
        strict += ["--builder", "linkcheck"]
    files = ["--config", str(config), "--toc", "book/_toc.yml", "--path-output", str(out)]
    builder = Path(sys.executable).with_name("jupyter-book")
    try:
        failed = subprocess.run([builder, "build", ".", *files, *strict], cwd=root).returncode
    finally:
        config.unlink()
    if failed:
        raise UserError("the book has warnings: they are printed above, in red")
    if arguments.links:
        return
    describe_root(out / "_build/html")
    print(f"open {out / '_build/html/index.html'}")


def describe_root(html: Path) -> None:
    """Give the page that leads to the first one its icon, and its description for link previews."""
    first = html / "book/index.html"
    head, _, _ = first.read_text(encoding="utf-8").partition("</head>")
    kept = re.findall(r'<meta [^>]*(?:name="description"|property="og:)[^>]*>', head)
    kept += [tag.replace("../", "") for tag in re.findall(r'<link rel="icon"[^>]*>', head)]
    tags = ['<meta charset="utf-8">', *re.findall(r"<title>.*?</title>", head, re.DOTALL), *kept]
    tags += ['<meta http-equiv="refresh" content="0; url=book/index.html">']
    text = "\n".join(["<!DOCTYPE html>", '<html lang="en"><head>', *tags, "</head></html>", ""])
    (html / "index.html").write_text(text, encoding="utf-8")


def read_config(root: Path) -> dict[str, Any]:
    """Return book/_config.yml, with buttons if the project has a repository's address."""
    config = yaml.safe_load((root / "book" / "_config.yml").read_text(encoding="utf-8"))
    if address := repository_address(root):
        config["repository"] = {"url": address, "branch": "main"}
        config["launch_buttons"] |= {
            "binderhub_url": "https://mybinder.org",
            "colab_url": "https://colab.research.google.com",
        }
        buttons = ("use_repository_button", "use_issues_button", "use_edit_page_button")
        config["html"] |= dict.fromkeys(buttons, True)
    return config


if __name__ == "__main__":
    run_tool(main)
