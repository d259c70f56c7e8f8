"""Build the book, strictly: a warning is an error. Outputs are those stored in the notebooks.

python -m dynconv.teach.book [--out DIR]     pages in DIR/_build/html (DIR: book)
"""

import argparse
import subprocess
import sys
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).parents[2]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "book")
    out = parser.parse_args().out.resolve()
    try:
        version = metadata.version("jupyter-book")
    except metadata.PackageNotFoundError:
        sys.exit("the book needs Jupyter Book: pip install 'dynconv[book]'")
    if int(version.split(".")[0]) != 1:
        sys.exit(f"Jupyter Book {version} is another program: pip install 'jupyter-book<2'")
    strict = ["-W", "-n", "--keep-going", "--all"]
    files = ["--config", "book/_config.yml", "--toc", "book/_toc.yml", "--path-output", str(out)]
    builder = Path(sys.executable).with_name("jupyter-book")
    if subprocess.run([builder, "build", ".", *files, *strict], cwd=ROOT).returncode:
        sys.exit("the book has warnings: they stand above, in red")
    print(f"to read: {out / '_build/html/index.html'}")


if __name__ == "__main__":
    main()
