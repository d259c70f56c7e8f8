"""Open the lessons in JupyterLab, with links to the other lessons and to the papers.

python book/_jupyter/lab.py [--folder DIR] [OPTION ...]  options of `jupyter lab`, as --no-browser

JupyterLab renders a lesson without knowing the other lessons and the bibliography. An extension,
which is written into book/_build/lab, tells it their titles, and authors and years.
"""

import argparse
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from pages import FOLDER, write_pages

ROOT = Path(__file__).resolve().parents[2]
NAME = "dynconv-lessons"
SCRIPT = "static/lessons.js"
LABEL = re.compile(r"^\((?P<label>[\w-]+)\)=\n#+ (?P<title>.*)$", re.MULTILINE)
EXERCISE = re.compile(r"^```\{exercise(?:-start)?\}.*\n:label: (?P<label>[\w-]+)$", re.MULTILINE)
EQUATION = re.compile(r"^```\{math\}\n:label: (?P<label>[\w-]+)$", re.MULTILINE)
SETTINGS = {
    "@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": False},
    # pages of the book are opened to be read
    "@jupyterlab/docmanager-extension:plugin": {"defaultViewers": {"markdown": "Markdown Preview"}},
}
"""Those of JupyterLab, unless a user has chosen others."""
UNLISTED = ["*.md", "*.toml", "__pycache__"]
"""Of a pair, a reader opens the notebook."""


def main() -> None:
    """Trust the notebooks, write the extension, and become JupyterLab."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=ROOT / "lessons", help="of the notebooks")
    arguments, options = parser.parse_known_args()
    made = ROOT / "book/_build/lab"
    references = locate_notebooks(arguments.folder.resolve())
    write_extension(made / "extensions", references)
    (made / "settings").mkdir(exist_ok=True)
    (made / "settings/overrides.json").write_text(json.dumps(SETTINGS), encoding="utf-8")
    jupyter = [sys.executable, "-m", "jupyter"]
    # so that moving figures show before the first run
    notebooks = sorted(map(str, arguments.folder.glob("*.ipynb")))
    print(f"{len(notebooks)} notebooks to trust, then JupyterLab starts ...", flush=True)
    subprocess.run([*jupyter, "trust", *notebooks], check=True, stdout=subprocess.DEVNULL)
    settings = [
        f"--LabApp.extra_labextensions_path={made / 'extensions'}",
        f"--LabApp.app_settings_dir={made / 'settings'}",
        f"--ContentsManager.hide_globs={UNLISTED}",
    ]
    folder = arguments.folder.resolve()
    root, opened, place = folder.parent, [str(folder)], ""
    if (root / "book").is_dir():
        write_pages(root, references, find_papers())
        opened = [f"--ServerApp.root_dir={root}", f"--ContentsManager.preferred_dir={folder.name}"]
        place = f"{folder.name}/"
    if notebooks:  # the first lesson, instead of an empty launcher
        opened.append(f"--LabApp.default_url=/lab/tree/{place}{Path(notebooks[0]).name}")
    os.execv(sys.executable, [*jupyter, "lab", *opened, *settings, *options])


def write_extension(extensions: Path, references: Mapping[str, Mapping[str, str]]) -> None:
    """Write the extension of JupyterLab into the folder `extensions`, with what it knows."""
    folder = extensions / NAME
    (folder / "static").mkdir(parents=True, exist_ok=True)
    build = {"load": SCRIPT, "extension": "./extension"}
    package = {
        "name": NAME,
        "version": "1.0.0",
        "jupyterlab": {"extension": True, "_build": build},
    }
    (folder / "package.json").write_text(json.dumps(package), encoding="utf-8")
    known = json.dumps({"references": references, "papers": find_papers()})
    code = Path(__file__).with_suffix(".js").read_text(encoding="utf-8")
    (folder / SCRIPT).write_text(f"const KNOWN = {known};\n{code}", encoding="utf-8")


def locate_notebooks(folder: Path) -> dict[str, dict[str, str]]:
    """Return the references with the paths of notebooks from the folder above `folder`.

    A lesson that `folder` lacks, because a reader has taken a few, is opened from `lessons`; where
    neither has it, its reference is text without a link.
    """
    located = {}
    for label, reference in find_references().items():
        place = dict(reference)
        if notebook := place.pop("notebook", None):
            paths = [f"{name}/{notebook}" for name in (folder.name, "lessons")]
            if found := [path for path in paths if (folder.parent / path).is_file()]:
                place["notebook"] = found[0]
        located[label] = place
    return located


@cache
def find_references() -> dict[str, dict[str, str]]:
    """Return the text of every label, and the notebook or the page of the book that it is in."""
    found = {}
    for page in sorted([*ROOT.glob("lessons/*.md"), *ROOT.glob("book/*.md")]):
        text = page.read_text(encoding="utf-8")
        lesson = page.parent.name == "lessons"
        place = {"notebook": f"{page.stem}.ipynb"} if lesson else {"page": f"{FOLDER}/{page.name}"}
        for match in LABEL.finditer(text):
            found[match["label"]] = {"text": match["title"], **place}
        part = f"{int(page.name[:2])}." if lesson else ""
        for number, match in enumerate(EXERCISE.finditer(text), 1):
            found[match["label"]] = {"text": f"Exercise {part}{number}", **place}
        for number, match in enumerate(EQUATION.finditer(text), 1):
            found[match["label"]] = {"text": f"({part}{number})", **place}
    return found


@cache
def find_papers() -> dict[str, dict[str, str]]:
    """Return authors, year, title and address of every work in the bibliography."""
    try:
        from pybtex.database import parse_file
    except ModuleNotFoundError:
        sys.exit("pybtex is missing: pip install 'dynconv[book]'")
    papers = {}
    for key, entry in parse_file(str(ROOT / "book/references.bib")).entries.items():
        names = [name.render_as("text") for name in map(last_name, entry.persons["author"])]
        many = len(names) > 2 or names[-1] == "others"
        authors = f"{names[0]} et al." if many else " and ".join(names)
        fields = entry.fields
        papers[key] = {
            "authors": authors,
            "year": fields["year"],
            "title": re.sub(r"[{}]", "", fields["title"]),
            "address": fields.get("url", ""),
        }
    return papers


def last_name(person):
    """Return a person's last name as pybtex's rich text, with its prelast part (van, de)."""
    from pybtex.richtext import Text

    return Text(" ").join([*person.rich_prelast_names, *person.rich_last_names])


if __name__ == "__main__":
    main()
