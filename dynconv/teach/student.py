"""Write lessons as notebooks without solutions and without outputs.

python -m dynconv.teach.student lessons/04*.md -o out/
"""

import argparse
import re
import sys
from pathlib import Path

try:
    import jupytext
    import nbformat
except ModuleNotFoundError as missing:
    sys.exit(f"{missing.name} is missing: pip install 'dynconv[lessons]'")

SOLUTION = re.compile(
    r"^```\{solution-start\}.*?^```\{solution-end\}\n```\n", re.DOTALL | re.MULTILINE
)


def without_solutions(text: str) -> str:
    """Return a lesson's MyST text without its solutions, from solution-start to solution-end."""
    return SOLUTION.sub("", text)


def main() -> None:
    """Write the lessons that the command line names, without solutions."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("lessons", nargs="+", type=Path, metavar="LESSON.md")
    parser.add_argument("-o", "--out", type=Path, required=True)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    for lesson in arguments.lessons:
        notebook = jupytext.reads(without_solutions(lesson.read_text("utf-8")), fmt="md:myst")
        target = arguments.out / lesson.with_suffix(".ipynb").name
        nbformat.write(notebook, target)
        print(target)


if __name__ == "__main__":
    main()
