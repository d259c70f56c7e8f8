"""Runs the paired lessons, checks that text and notebook agree, or strips them for students.

    python -m dynconv.teach.lessons run [NAME ...]             text -> executed notebook
    python -m dynconv.teach.lessons check [NAME ...]           compare, execute nothing
    python -m dynconv.teach.lessons student [NAME ...] [--out DIR] [--colab]
                                                notebooks to work in

NAME is the beginning of a file name, such as 04. Without a NAME, run executes the lessons whose
notebook does not match their text; check and student take all lessons. A second run writes the same
bytes, except for the outputs of cells tagged timing. With --colab, the first cell of a student's
notebook installs dynconv in a session of Google Colab.
"""

import argparse
import hashlib
import os
import re
import sys
from pathlib import Path

try:
    import jupytext
    import nbformat
    from jupytext.compare import NotebookDifference, compare_notebooks
    from nbclient import NotebookClient
except ModuleNotFoundError as missing:
    sys.exit(f"{missing.name} is missing: pip install 'dynconv[lessons]'")

from dynconv.errors import UserError
from dynconv.teach.checkout import repository_address, require_checkout, run_tool

ENVIRONMENT = {
    "PYTHONHASHSEED": "0",
    "OMP_NUM_THREADS": "1",
    "MPLBACKEND": "module://matplotlib_inline.backend_inline",
}
INSTALL = """# Install dynconv and its lessons' packages: about a minute
import sys
!git clone -q --depth 1 {address} /content/dynconv
%pip install -q '/content/dynconv[lessons]'
sys.path.insert(0, "/content/dynconv")
%cd -q /content/dynconv/lessons"""
CELL_METADATA = ("tags", "mystnb")
SOLUTION = re.compile(
    r"^```\{solution-start\}.*?^```\{solution-end\}\n```\n", re.DOTALL | re.MULTILINE
)


def name_cells(notebook) -> None:
    """Give each cell an id that depends on its text, so an edit changes no other cell's id."""
    seen = set()
    for cell in notebook.cells:
        text = cell.source
        while (name := hashlib.sha256(text.encode()).hexdigest()[:8]) in seen:
            text += "\n"
        seen.add(name)
        cell.id = name


def hidden_parts(cell) -> dict[str, bool]:
    """Return which parts of a code cell JupyterLab hides: solutions, and code or outputs by tag."""
    tags = cell.metadata.get("tags", [])
    hidden = {
        "source_hidden": "solution" in tags or "hide-input" in tags,
        "outputs_hidden": "solution" in tags or "hide-output" in tags,
    }
    return {part: True for part, hide in hidden.items() if hide}


def saved_form(text: Path) -> str:
    """Return a lesson's text as JupyterLab would save it, without jupytext's version."""
    written = jupytext.writes(jupytext.read(text), fmt="md:myst")
    return re.sub(r"^ +jupytext_version: .*\n", "", written, count=1, flags=re.MULTILINE)


def run(text: Path) -> None:
    """Execute a lesson's text and store it, with outputs, as the notebook of the same name.

    The text itself is rewritten as JupyterLab would save it.
    """
    text.write_text(saved_form(text), encoding="utf-8")
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
        if hidden := hidden_parts(cell):
            cell.metadata["jupyter"] = hidden
    nbformat.write(notebook, text.with_suffix(".ipynb"))


def check(text: Path) -> None:
    """Raise AssertionError unless the notebook has the text's cells and ran 1..N without error."""
    stored = text.with_suffix(".ipynb")
    assert stored.exists(), f"{stored.name} is missing: run the lesson"
    notebook = nbformat.read(stored, as_version=4)
    for cell in notebook.cells:
        hidden = cell.metadata.pop("jupyter", {})
        assert hidden == hidden_parts(cell), (
            f"{stored.name} hides {hidden} of a cell: run the lesson"
        )
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
    assert not errors, f"{stored.name} contains errors: {errors}"


def is_current(text: Path) -> bool:
    """Return whether the notebook matches the text, and has run."""
    try:
        check(text)
    except AssertionError:
        return False
    return True


def strip(text: Path, out: Path, install: str = "") -> None:
    """Write a lesson as a notebook in `out`, without outputs, with an empty cell per solution.

    install  the source of an additional first cell; "" adds none
    """
    out.mkdir(parents=True, exist_ok=True)
    exercises = SOLUTION.sub("```{code-cell} ipython3\n```\n", text.read_text("utf-8"))
    notebook = jupytext.reads(exercises, fmt="md:myst")
    if install:
        notebook.cells.insert(0, nbformat.v4.new_code_cell(install))
    name_cells(notebook)
    nbformat.write(notebook, out / f"{text.stem}.ipynb")


def colab_setup(root: Path) -> str:
    """Return the source of the cell that installs dynconv in Colab, with its data."""
    address = repository_address(root)
    if not address:
        raise UserError(
            "--colab needs the address of the repository: set project.urls in pyproject.toml"
        )
    return INSTALL.format(address=address)


def main() -> None:
    """Run, check or strip the lessons that the command line names."""
    folder = require_checkout() / "lessons"
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("action", choices=["run", "check", "student"])
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("-o", "--out", type=Path, default=Path("student"))
    parser.add_argument("--colab", action="store_true", help="student: install dynconv in Colab")
    arguments = parser.parse_args()
    names = arguments.names or [""]
    texts = sorted({text for name in names for text in folder.glob(f"{name}*.md")})
    if not texts:
        raise UserError(f"no lesson begins with {' or '.join(names)}: see {folder}")
    install = colab_setup(folder.parent) if arguments.colab else ""
    for text in texts:
        if arguments.action == "check":
            try:
                check(text)
            except AssertionError as error:
                sys.exit(str(error))
        elif arguments.action == "student":
            strip(text, arguments.out, install)
        elif arguments.names or not is_current(text):
            run(text)
        print(f"{text.stem}: ok")
    if arguments.action == "student":
        print(f"to open them: {sys.executable} book/_jupyter/lab.py --folder {arguments.out}")


if __name__ == "__main__":
    run_tool(main)
