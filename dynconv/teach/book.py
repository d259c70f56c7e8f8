"""Build the book from the stored notebooks. A warning of the builder is an error.

python -m dynconv.teach.book [--out DIR]     pages in DIR/_build/html (DIR: book)
"""

import argparse
import subprocess
import sys
from importlib import metadata
from pathlib import Path

from dynconv.errors import UserError
from dynconv.teach.checkout import checkout, run_tool


def main() -> None:
    """Build the book into `--out`; UserError if that is not possible here."""
    root = checkout()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=root / "book")
    out = parser.parse_args().out.resolve()
    try:
        version = metadata.version("jupyter-book")
    except metadata.PackageNotFoundError:
        raise UserError("the book needs Jupyter Book: pip install 'dynconv[book]'") from None
    if int(version.split(".")[0]) != 1:
        raise UserError(f"Jupyter Book {version} is another program: pip install 'jupyter-book<2'")
    strict = ["-W", "-n", "--keep-going", "--all"]
    files = ["--config", "book/_config.yml", "--toc", "book/_toc.yml", "--path-output", str(out)]
    builder = Path(sys.executable).with_name("jupyter-book")
    if subprocess.run([builder, "build", ".", *files, *strict], cwd=root).returncode:
        raise UserError("the book has warnings: they are printed above, in red")
    print(f"open {out / '_build/html/index.html'}")


if __name__ == "__main__":
    run_tool(main)
