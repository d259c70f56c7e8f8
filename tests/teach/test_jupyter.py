"""A lesson in a real JupyterLab, as `make jupyter` opens it: read, run from top to end, saved."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from functools import partial

import nbformat
import pytest
from conftest import ROOT

from dynconv import decode, layers, models, ops, score, train

LESSON, OTHER = "04_depthwise", "00_how"
FOLDED = "def dilated_slices"  # in the solution to exercise 3
# Not the circle in the toolbar, which says idle before there is a kernel, too.
IDLE = "#jp-main-statusbar :text('| Idle')"
SAVED = ".lm-DockPanel-tabBar .jp-mod-current:not(.jp-mod-dirty)"
MODIFIED = ".lm-DockPanel-tabBar .jp-mod-dirty"
WRONG = ".jp-Dialog-content, [data-mime-type$=stderr]:has-text('Traceback')"


@pytest.fixture
def folder(tmp_path):
    """One lesson that has not run, with the settings of all, beside the book."""
    (tmp_path / "book").mkdir()
    errata = "# Errata\n\nPrinted and true, {cite:t}`wu2019pay`, {ref}`lesson-how`.\n"
    (tmp_path / "book/errata.md").write_text(errata, encoding="utf-8")
    lessons = tmp_path / "lessons"
    lessons.mkdir()
    shutil.copy(ROOT / "lessons/jupytext.toml", lessons)
    shutil.copy(ROOT / f"lessons/{LESSON}.md", lessons)
    notebook = nbformat.read(ROOT / f"lessons/{LESSON}.ipynb", as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    nbformat.write(notebook, lessons / f"{LESSON}.ipynb")
    figure = nbformat.v4.new_output("display_data", {"text/plain": "<Figure size 1x1>"})
    folded = {"jupyter": {"source_hidden": True, "outputs_hidden": True}}
    references = "{ref}`appendix-errata`, {ref}`in words <appendix-errata>`, {eq}`eq-dense`"
    text = nbformat.v4.new_markdown_cell(f"The other lesson, and {references}")
    cell = nbformat.v4.new_code_cell("plot()", metadata=folded, outputs=[figure])
    other = nbformat.v4.new_notebook(cells=[text, cell], metadata=notebook.metadata)
    nbformat.write(other, lessons / f"{OTHER}.ipynb")
    return lessons


@pytest.fixture
def lab(folder):
    """The address of a server on that folder."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = [f"--port={port}", "--no-browser", "--allow-root", "--IdentityProvider.token="]
    options += ["--ServerApp.port_retries=0", f"--folder={folder}"]
    home = {
        "JUPYTER_CONFIG_DIR": str(folder / ".config"),
        "JUPYTER_DATA_DIR": str(folder / ".data"),
    }
    address = f"http://127.0.0.1:{port}"
    command = [sys.executable, ROOT / "book/_jupyter/lab.py", *options]
    server = subprocess.Popen(command, env=os.environ | home)
    try:
        for _ in range(900):
            try:
                urllib.request.urlopen(f"{address}/api").close()
                break
            except OSError:
                assert server.poll() is None
                time.sleep(0.2)
        yield address
    finally:
        server.terminate()
        server.wait(60)


def wait(page, state):
    """Until that is on the page; a dialog, or a cell that raises, ends the test."""
    page.wait_for_selector(f"{state}, {WRONG}", state="attached")
    wrong = page.locator(WRONG).all_text_contents()
    assert not wrong, "\n".join(wrong)


def test_a_page_of_the_book_becomes_plain_markdown(tmp_path):
    """No role, label or directive is left of any page, and its links lead somewhere."""
    (tmp_path / "lessons").mkdir()
    for notebook in (ROOT / "lessons").glob("*.ipynb"):
        (tmp_path / "lessons" / notebook.name).symlink_to(notebook)
    (tmp_path / "data").symlink_to(ROOT / "data")
    shutil.copytree(ROOT / "book", tmp_path / "book", ignore=shutil.ignore_patterns("_build"))
    script = (
        "import pathlib, sys, lab, pages\n"
        "root = pathlib.Path(sys.argv[1])\n"
        "references = lab.locate_notebooks(root / 'lessons')\n"
        "pages.write_pages(root, references, lab.find_papers())"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    subprocess.run(command, cwd=ROOT / "book/_jupyter", check=True)
    pages = sorted((tmp_path / "book/_build/lab/pages").glob("*.md"))
    assert len(pages) > 10
    for page in pages:
        if page.stem == "lesson_template":
            continue
        text = re.sub(r"^```\w*$.*?^```$|`[^`]*`", "", page.read_text("utf-8"), flags=re.M | re.S)
        assert not re.findall(r"\{[\w:-]+\}$|^\([\w-]+\)=$|^:{3,}|^```", text, re.M), page.name
        links = re.findall(r"\]\((?!https?://)([^)#]+)\)", text)
        assert all((page.parent / target).is_file() for target in links), (page.name, links)
    errata = (pages[0].parent / "errata.md").read_text("utf-8")
    assert "[Wu et al., 2019](https://" in errata
    index = (pages[0].parent / "index.md").read_text("utf-8")
    assert "**[Start here: lesson 00](../../../../lessons/00_how.ipynb)**" in index
    assert "[18](../../../../lessons/18_roofline.ipynb)" in index
    package = (pages[0].parent / "api.md").read_text("utf-8")
    # The role `func` has a tilde in the source.
    assert "`implementations` lists all" in package.replace("\n", " ")
    exported = [n for p in (ops, layers, models, train, decode, score) for n in p.__all__]
    assert not [n for n in exported if not re.search(rf"^- `{n}`: [A-Z-].*\S$", package, re.M)]
    papers = (pages[0].parent / "bibliography.md").read_text("utf-8")
    assert "](https://arxiv.org/abs/1901.10430): Pay Less Attention with" in papers


def test_a_lesson_that_a_folder_lacks_is_opened_from_the_lessons(tmp_path):
    """The student edition of a few lessons has links to the others."""
    for place in ("student/04_depthwise", "lessons/04_depthwise", "lessons/00_how"):
        (tmp_path / place).parent.mkdir(exist_ok=True)
        (tmp_path / f"{place}.ipynb").touch()
    script = (
        "import json, pathlib, sys, lab\n"
        "print(json.dumps(lab.locate_notebooks(pathlib.Path(sys.argv[1]))))"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "student")]
    run = partial(subprocess.run, cwd=ROOT / "book/_jupyter", check=True, capture_output=True)
    found = json.loads(run(command).stdout)
    assert found["lesson-depthwise"]["notebook"] == "student/04_depthwise.ipynb"
    assert found["lesson-how"]["notebook"] == "lessons/00_how.ipynb"
    assert found["lesson-bpe"] == {"text": "Text to numbers: byte-pair encoding"}
    assert found["appendix-errata"]["page"].endswith("/errata.md")


def test_a_lesson_reads_as_in_the_book(lab, browser):
    first = urllib.request.urlopen(lab).url
    assert first.endswith(f"/lab/tree/lessons/{OTHER}.ipynb")  # what opens by itself
    page = browser.new_page(viewport={"width": 1400, "height": 12_000})
    page.set_default_timeout(120_000)
    page.goto(f"{lab}/lab/workspaces/read/tree/lessons/{LESSON}.ipynb")
    wait(page, IDLE)
    page.wait_for_selector("a[data-label=gu2023mamba]")
    page.wait_for_selector(".jp-CodeCell [data-language=python]")  # as the kernel says
    page.wait_for_timeout(1000)
    assert page.locator("h1[data-number='4.']:visible").count() == 1  # as in the book
    widths = page.locator(".jp-MarkdownCell p:visible").evaluate_all(
        "texts => texts.map(text => text.clientWidth)"
    )
    assert max(widths) < 800  # of 1,400
    links = page.locator("a[data-label]")
    texts = links.all_text_contents()
    assert "Four ways to mix a sentence" in texts  # {ref}
    assert {"Wu et al. [2019]", "Howard et al., 2017", "Gu and Dao [2023]"} <= {*texts}  # {cite}
    equations = page.locator("a[title='Link to this Equation']:visible").all_text_contents()
    assert equations == [f"(4.{n})" for n in range(1, 5)]  # not one for that without a label
    assert {*page.locator("a.hover-link[href='#eq-dense']").all_text_contents()} == {"(4.1)"}
    assert page.locator("a[data-label=wu2019pay]").get_attribute("href").startswith("https://")
    solutions = page.locator("details.myst-exercise")
    folded = page.locator(f".jp-Notebook .jp-Cell:has-text('{FOLDED}')")
    assert solutions.count() > 3 and not folded.is_visible()
    assert not page.locator(".myst-exercise-title:has-text('Start of')").count()
    solutions.locator("summary", has_text="Exercise 4.3").click()
    page.wait_for_selector(f".jp-CodeCell .cm-line:has-text('{FOLDED}')")  # visible, its code too
    solutions.locator("summary", has_text="Exercise 4.3").click()
    folded.wait_for(state="hidden")
    raw = page.locator("[title$='Not Found']")
    assert raw.count() == links.count() and not any(r.is_visible() for r in raw.all())
    ends = page.locator("aside:has-text('End of Exercise')").all()
    assert ends and not any(end.is_visible() for end in ends)
    figures = page.locator(".jp-RenderedImage img").all()
    assert all(" " in figure.get_attribute("alt") for figure in figures)
    assert page.locator(MODIFIED).count() == 0
    assert page.locator(".Toastify__toast").count() == 0  # news
    files = page.locator(".jp-DirListing-itemText").all_text_contents()
    assert files == [f"{OTHER}.ipynb", f"{LESSON}.ipynb"]
    page.locator("a[data-label=lesson-how]").first.click()
    page.wait_for_selector(":text('The other lesson')")
    page.wait_for_selector(".jp-OutputPlaceholder:has-text('Output'):visible")  # folded
    assert page.locator(".jp-OutputPlaceholder:has-text('<Figure')").count() == 0
    assert page.locator("a[data-label=eq-dense]").text_content() == "(4.1)"
    worded = page.locator("a[data-label=appendix-errata]:text-is('in words'):visible")
    assert worded.count() == 1 and page.locator(".hover-link:visible").count() == 0
    for reference in (worded, page.locator("a[data-label=appendix-errata]:text-is('Errata')")):
        reference.click()
        page.wait_for_selector(".jp-MarkdownViewer :text('Printed and true'):visible")
        page.click(f".lm-TabBar-tabLabel:text-is('{OTHER}.ipynb')")
    page.click(".lm-TabBar-tabLabel:text-is('errata.md')")
    page.click(".jp-MarkdownViewer a:text-is('Four ways to mix a sentence')")
    page.wait_for_selector(f".jp-mod-current:has-text('{OTHER}.ipynb')")
    page.close()


def test_run_all_and_save(folder, lab, browser):
    path, pair = folder / f"{LESSON}.ipynb", folder / f"{LESSON}.md"
    code = [c for c in nbformat.read(path, as_version=4).cells if c.cell_type == "code"]
    solutions = ["solution" in cell.metadata.get("tags", []) for cell in code]
    shown = max(n for n, folded in enumerate(solutions, 1) if not folded)
    text = pair.read_bytes().decode()
    page = browser.new_page(viewport={"width": 1400, "height": 1000})
    page.set_default_timeout(120_000)
    page.goto(f"{lab}/lab/workspaces/test/tree/lessons/{LESSON}.ipynb")
    wait(page, IDLE)
    page.click(".lm-MenuBar-itemLabel:text-is('Run')")
    page.click(".lm-Menu-itemLabel:text-is('Run All Cells')")
    wait(page, f".jp-InputPrompt:text-is('[{shown}]:')")
    wait(page, IDLE)
    assert page.locator(".jp-InputPlaceholder").count() > 0  # a solution, folded
    captions = page.locator(".jp-RenderedImage figcaption").all_text_contents()
    assert any(re.match(r"Fig\. 4\.\d [A-Z].*\.$", caption) for caption in captions)
    page.keyboard.press("Control+s")
    wait(page, SAVED)
    code = [c for c in nbformat.read(path, as_version=4).cells if c.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    assert not [o for cell in code for o in cell.outputs if o.output_type == "error"]
    assert pair.read_bytes().decode() == text  # written at the same time
    hidden = [cell.metadata.get("jupyter", {}).get("source_hidden", False) for cell in code]
    folded = [{"solution", "hide-input"} & {*cell.metadata.get("tags", [])} for cell in code]
    assert hidden == [bool(tags) for tags in folded]
