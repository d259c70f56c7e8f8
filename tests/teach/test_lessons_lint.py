"""What every lesson keeps, so that a reader who knows one finds the way in all."""

import ast
import re
import shutil
from collections import defaultdict
from itertools import groupby, pairwise
from pathlib import Path
from statistics import median, quantiles

import nbformat
import pytest
import yaml
from conftest import ROOT
from helpers.lessons import LESSONS, TEMPLATE, TEXTS, all_cells, cells, prose

from dynconv.teach import widgets
from dynconv.teach.lessons import check, hidden_parts, run, saved_form

STAGES = [
    "Question",
    "By hand",
    "The equation",
    "A loop",
    "Faster",
    "See it",
    "Measure",
    "Check against the package",
]
"""headings that say what a section does and not what it is about"""
END = ["Exercises", "Recap", "References"]
WIDGET = re.compile(rf"({'|'.join(widgets.__all__)})\(")
LAYOUT = re.compile(r"(A|An|One|Two|Three|Four|Five|Six|Seven|Eight) [a-z]+( of [a-z]+)?\.")
"""a caption that only says how the figure is laid out, as "Two rows of boxes." """
KINDS = ("predict", "derive", "implement", "measure", "find the bug", "open")
PACKAGE = ROOT / "dynconv"
DEFINITIONS = (ast.FunctionDef, ast.ClassDef)


each_lesson = pytest.mark.parametrize("text", TEXTS, ids=lambda path: path.stem)
each_text = pytest.mark.parametrize("text", [*TEXTS, TEMPLATE], ids=lambda path: path.stem)


def tags(cell) -> list[str]:
    return cell.metadata.get("tags", [])


def lines(cell) -> int:
    return len(cell.source.splitlines())


def definitions(source: str) -> set[str]:
    """Names of the functions and classes at the top of a module or cell."""
    return {node.name for node in ast.parse(source).body if isinstance(node, DEFINITIONS)}


@each_lesson
def test_pair_agrees_and_has_run(text):
    check(text)


@each_text
def test_saving_it_in_jupyterlab_changes_nothing(text):
    assert text.read_text(encoding="utf-8") == saved_form(text), "run the lesson"


def test_the_template_runs(tmp_path):
    text = Path(shutil.copy(TEMPLATE, tmp_path / "99_template.md"))
    run(text)
    check(text)


@each_text
def test_opening_and_headings(text):
    source = prose(text)
    assert re.match(r"\(lesson-[a-z0-9-]+\)=\n# \S", source), "a label and a title come first"
    opening = source.partition("\n## ")[0]
    headings = re.findall(r"^## (.+)$", source, re.MULTILINE)
    assert re.search(r"^# .+\n\n\*\d+ minutes · runs in .+ · .*GPU.* · .+\*$", opening, re.M), (
        opening
    )
    question = re.search(r"\*\*[^*]+\?\*\*", opening)
    assert question, "no question in bold before the first heading"
    before = len(opening[: question.start()].split())
    assert before <= 250, f"{before} words before the question: it is not on the first screen"
    assert headings[-3:] == END
    assert not {*headings} & {*STAGES}, "headings name the content, not the stage"


def minutes(text: Path) -> int:
    """The minutes that a lesson states."""
    return int(re.search(r"^\*(\d+) minutes", prose(text), re.MULTILINE)[1])


@each_text
def test_reading_takes_the_minutes_that_are_stated(text):
    """200 words a minute and three seconds per line of code, without the exercises."""
    words = code_lines = 0
    reading = True
    for cell in all_cells(text):
        if cell.cell_type == "code":
            lines = [line for line in cell.source.splitlines() if line.strip()]
            code_lines += reading * len(lines)
            continue
        for part in re.split(r"^(## .+)$", re.sub(r"\$[^$]*\$", "x", cell.source), flags=re.M):
            if part.startswith("## "):
                reading = part != "## Exercises"
            words += reading * len(part.split())
    read = words / 200 + code_lines * 3 / 60
    assert abs(minutes(text) - read) <= 1, f"{words} words and {code_lines} lines: {read:.0f}"


@each_lesson
def test_readme_has_its_title_and_minutes(text):
    source, number = prose(text), text.name[:2]
    title = re.search(r"^# (.+)$", source, re.MULTILINE)[1]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"| {number} | [{title}](lessons/{text.name}) | {minutes(text)} |" in readme


def test_contents_number_the_lessons_as_their_files():
    """Hence equation (11.2) is the second one of lesson 11; book/_ext counts from 0."""
    contents = yaml.safe_load((ROOT / "book/_toc.yml").read_text(encoding="utf-8"))
    unnumbered = "Appendices", "Back matter"
    parts = [part for part in contents["parts"] if part["caption"] not in unnumbered]
    assert all(part["numbered"] == 1 for part in parts)
    pages = [page["file"] for part in parts for page in part["chapters"]]
    numbers = [int(re.match(r"lessons/(\d\d)_", page)[1]) for page in pages]
    assert numbers == list(range(len(TEXTS)))


@each_text
def test_equations_are_labelled(text):
    source = prose(text)
    blocks = re.findall(r"^```\{math\}\n(.*)$", source, re.MULTILINE)
    assert blocks and all(first.startswith(":label: eq-") for first in blocks)


CITED = {
    "layers/attention.py": ["eq-attention-score", "eq-attention"],
    "layers/average.py": ["eq-averaging-mean", "eq-averaging-gates"],
    "layers/convs2s.py": ["eq-gates-conv", "eq-gates-hop", "eq-attention"],
    "ops/average.py": ["eq-averaging-mean"],
    "ops/depthwise.py": ["eq-depthwise"],
    "ops/dynamicconv.py": ["eq-dynamic"],
    "ops/lightconv.py": ["eq-sharing"],
    "ops/normalize.py": ["eq-softmax-kernel"],
    "ops/talk.py": [
        "eq-windows-share",
        "eq-talk-gradients-dx",
        "eq-talk-gradients-doffset",
    ],
    "teach/check/beyond_translation.py": ["eq-findings-seeds"],
    "models/loss.py": ["eq-batches-loss"],
}
"""the equations of the book that a module's docstrings name by number, as (11.3)"""


def test_docstrings_cite_the_equations_they_mean():
    numbered = {}
    for text in TEXTS[1:]:
        labels = re.findall(r"^```\{math\}\n:label: (eq-.*)$", prose(text), re.MULTILINE)
        for n, label in enumerate(labels, start=1):
            numbered[f"{int(text.name[:2])}.{n}"] = label
    found = {}
    for module in PACKAGE.rglob("*.py"):
        source = module.read_text(encoding="utf-8")
        numbers = re.findall(r"\((\d+\.\d+)\)", source)
        if numbers and "of the book" in source:
            labels = dict.fromkeys(numbered[n] for n in numbers)
            found[module.relative_to(PACKAGE).as_posix()] = list(labels)
    assert found == CITED


@each_text
def test_recap_is_short(text):
    recap = prose(text).partition("\n## Recap\n")[2].partition("\n## ")[0]
    assert 1 <= len(re.findall(r"^- ", recap, re.MULTILINE)) <= 5


@each_text
def test_code_cells_are_short(text):
    lengths = [lines(cell) for cell in cells(text, "code")]
    assert median(lengths) <= 6
    assert quantiles(lengths, n=10)[-1] <= 18
    assert max(lengths) <= 30


@each_text
def test_prose_stands_between_longer_cells(text):
    for above, below in pairwise(all_cells(text)):
        if above.cell_type == below.cell_type == "code":
            assert min(lines(above), lines(below)) <= 5, below.source


@each_text
def test_first_cell_imports_and_sets_the_style(text):
    *imports, last = ast.parse(cells(text, "code")[0].source).body
    assert all(isinstance(node, (ast.Import, ast.ImportFrom)) for node in imports)
    assert ast.unparse(last) == "style.use()"


@each_text
def test_figures_have_a_size_and_are_shown(text):
    for cell in cells(text, "code"):
        if "plt.subplots" in cell.source or "plt.figure" in cell.source:
            assert "figsize=" in cell.source and cell.source.endswith("plt.show()"), cell.source


@each_text
def test_no_assert_gives_a_folded_answer_away(text):
    """It comes after the prose that answers, because a reader of **Predict** sees it at once."""
    asked = False
    for kind, group in groupby(all_cells(text), key=lambda cell: cell.cell_type):
        group = list(group)
        if (
            kind == "code"
            and asked
            and any("outputs_hidden" in hidden_parts(cell) for cell in group)
        ):
            for cell in group:
                nodes = ast.walk(ast.parse(cell.source))
                seen = any(isinstance(node, ast.Assert) for node in nodes)
                assert not seen or "source_hidden" in hidden_parts(cell), cell.source
        asked = kind == "markdown" and any("**Predict" in cell.source for cell in group)


@each_lesson
def test_outputs_that_are_figures_come_from_cells_that_show_them(text):
    """Otherwise the next test would not see them."""
    for cell in nbformat.read(text.with_suffix(".ipynb"), as_version=4).cells:
        figures = [out for out in cell.get("outputs", []) if "image/png" in out.get("data", {})]
        if figures:
            assert len(figures) == 1 and cell.source.endswith("plt.show()"), cell.source


@each_text
def test_figures_have_alternative_texts_and_fold_their_code(text):
    first, *others = cells(text, "code")
    assert "hide-input" in tags(first), "fold the imports"
    for cell in others:
        moves = WIDGET.match(cell.source.split("\n")[-1])
        if cell.source.endswith("plt.show()") or moves:
            alt = cell.metadata.get("mystnb", {}).get("image", {}).get("alt", "")
            caption, *rest = re.split(r"(?<=\.)\s+(?=[A-Z])", alt)
            assert re.match("[A-Z]", alt) and alt.endswith("."), f"{alt!r} is no sentence"
            assert bool(rest) != bool(moves), f"{alt!r}: a caption, and of a plot what is seen"
            assert len(caption.split()) > 3 and not LAYOUT.match(caption), caption
            assert moves or {"hide-input", "solution"} & {*tags(cell)}, cell.source


@each_text
def test_claims_are_asserted(text):
    trees = [ast.parse(cell.source) for cell in cells(text, "code")]
    assert sum(isinstance(node, ast.Assert) for tree in trees for node in ast.walk(tree)) >= 3


@each_lesson
def test_outputs_are_the_same_on_every_machine(text):
    for cell in nbformat.read(text.with_suffix(".ipynb"), as_version=4).cells:
        if cell.cell_type == "code":
            assert ("nbval-ignore-output" in tags(cell)) == ("timing" in tags(cell)), cell.source
            if "timing" not in tags(cell):
                printed = str(
                    [out for out in cell.outputs if "image/png" not in out.get("data", {})]
                )
                assert not re.search(r"0x[0-9a-f]{6}|/home/|/tmp/|site-packages", printed), printed


@each_text
def test_exercises_have_solutions(text):
    source = prose(text)
    kinds = re.findall(r"^`{3,}\{exercise(?:-start)?\} (.*)$", source, re.MULTILINE)
    assert 3 <= len(kinds) <= 6
    for title in kinds:
        assert title.endswith(tuple(f"({kind})" for kind in KINDS)), title
        assert re.match(r"★{1,3} \S", title), f"{title}: how difficult?"
    exercises = re.findall(r"^`{3,}\{exercise(?:-start)?\}.*\n:label: (.+)$", source, re.MULTILINE)
    solutions = re.findall(
        r"^`{3,}\{solution-start\} (.+)\n:label: .+\n:class: dropdown$", source, re.M
    )
    assert solutions == exercises
    assert source.count("{solution-end}") == len(solutions)


@each_text
def test_solution_code_is_tagged(text):
    inside = False
    for cell in all_cells(text):
        if cell.cell_type == "code":
            assert ("solution" in tags(cell)) == inside, cell.source
        for mark in re.findall(r"^`{3,}\{solution-(start|end)\}", cell.source, re.MULTILINE):
            inside = mark == "start"


@each_text
def test_nothing_leans_on_a_solution(text):
    """The student edition has none, and must run all the same."""
    given, solved = set(), set()
    for cell in cells(text, "code"):
        nodes = list(ast.walk(ast.parse(cell.source)))
        made = {node.name for node in nodes if isinstance(node, DEFINITIONS)}
        made |= {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        if "solution" in tags(cell):
            solved |= made
        else:
            given |= made
            used = {node.id for node in nodes if isinstance(node, ast.Name)}
            assert not used & (solved - given), cell.source


def test_no_lesson_defines_what_the_package_or_another_lesson_defines():
    owner = defaultdict(set)
    for module in PACKAGE.rglob("*.py"):
        for name in definitions(module.read_text(encoding="utf-8")):
            owner[name].add("the package")
    for text in LESSONS.glob("*.md"):
        for cell in cells(text, "code"):
            for name in definitions(cell.source):
                if "the package" in owner[name] or name[0].isupper():
                    owner[name].add(text.stem)
    assert not {name: where for name, where in owner.items() if len(where) > 1}
