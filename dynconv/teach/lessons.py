"""Run the paired lessons, and check that text and notebook agree.

    python -m dynconv.teach.lessons run [NAME ...]     text -> executed notebook
    python -m dynconv.teach.lessons check [NAME ...]   compare, execute nothing

NAME is the beginning of a file name, such as 04. Without one, run takes the lessons whose notebook
is not that of their text, and check takes all. A second run writes the same bytes, but for the
output of cells tagged timing.
"""

import argparse
import hashlib
import os
import sys
from pathlib import Path

try:
    import jupytext
    import nbformat
    from jupytext.compare import NotebookDifference, compare_notebooks
    from nbclient import NotebookClient
except ModuleNotFoundError as missing:
    sys.exit(f"{missing.name} is missing: pip install 'dynconv[lessons]'")

LESSONS = Path(__file__).parents[2] / "lessons"
ENVIRONMENT = {
    "PYTHONHASHSEED": "0",
    "OMP_NUM_THREADS": "1",
    "MPLBACKEND": "module://matplotlib_inline.backend_inline",
}
CELL_METADATA = ("tags", "mystnb")


def name_cells(notebook) -> None:
    """Ids from the cells' own text, so that a run changes none and an edit changes one."""
    seen = set()
    for cell in notebook.cells:
        text = cell.source
        while (name := hashlib.sha256(text.encode()).hexdigest()[:8]) in seen:
            text += "\n"
        seen.add(name)
        cell.id = name


def run(text: Path) -> None:
    """Execute the text of a lesson and store it, with outputs, as the notebook beside it."""
    notebook = jupytext.read(text)
    name_cells(notebook)
    os.environ.update(ENVIRONMENT)
    NotebookClient(
        notebook,
        timeout=120,
        kernel_name="python3",
        coalesce_streams=True,
        resources={"metadata": {"path": str(text.parent)}},
    ).execute()
    notebook.metadata = {"kernelspec": notebook.metadata["kernelspec"]}
    for cell in notebook.cells:
        cell.metadata = {k: cell.metadata[k] for k in CELL_METADATA if k in cell.metadata}
    nbformat.write(notebook, text.with_suffix(".ipynb"))


def check(text: Path) -> None:
    """Raise AssertionError unless the notebook has the text's cells and ran 1..N without error."""
    stored = text.with_suffix(".ipynb")
    assert stored.exists(), f"{stored.name} is missing: run the lesson"
    notebook = nbformat.read(stored, as_version=4)
    try:
        compare_notebooks(
            jupytext.read(text), notebook, fmt="md:myst", allow_expected_differences=True
        )
    except NotebookDifference as difference:
        raise AssertionError(f"{text.name} and {stored.name} differ:\n{difference}") from None
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    counts = [cell.execution_count for cell in code]
    assert counts == list(range(1, len(code) + 1)), f"{stored.name} was not run 1..N: {counts}"
    errors = [out.ename for cell in code for out in cell.outputs if out.output_type == "error"]
    assert not errors, f"{stored.name} holds errors: {errors}"


def is_current(text: Path) -> bool:
    try:
        check(text)
    except AssertionError:
        return False
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("action", choices=["run", "check"])
    parser.add_argument("names", nargs="*", metavar="NAME")
    arguments = parser.parse_args()
    names = arguments.names or [""]
    texts = sorted({text for name in names for text in LESSONS.glob(f"{name}*.md")})
    if not texts:
        sys.exit(f"no lesson begins with {' or '.join(names)}")
    for text in texts:
        if arguments.action == "check":
            try:
                check(text)
            except AssertionError as error:
                sys.exit(str(error))
        elif arguments.names or not is_current(text):
            run(text)
        print(f"{text.stem}: ok")


if __name__ == "__main__":
    main()
