"""A lesson in a real JupyterLab: opened in a browser, run from top to bottom, saved as a pair."""

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request

import nbformat
import pytest
from conftest import ROOT

LESSON = "04_depthwise"
# Not the circle in the toolbar, which says idle before there is a kernel, too.
IDLE = "#jp-main-statusbar :text('| Idle')"
SAVED = ".lm-DockPanel-tabBar .jp-mod-current:not(.jp-mod-dirty)"
WRONG = ".jp-Dialog-content, [data-mime-type$=stderr]:has-text('Traceback')"


@pytest.fixture
def folder(tmp_path):
    """One lesson that has not run, with the settings of all."""
    shutil.copy(ROOT / "lessons/jupytext.toml", tmp_path)
    shutil.copy(ROOT / f"lessons/{LESSON}.md", tmp_path)
    notebook = nbformat.read(ROOT / f"lessons/{LESSON}.ipynb", as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    nbformat.write(notebook, tmp_path / f"{LESSON}.ipynb")
    return tmp_path


@pytest.fixture
def lab(folder):
    """The address of a server on that folder."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = [f"--port={port}", "--no-browser", f"--ServerApp.root_dir={folder}", "--allow-root"]
    options += ["--IdentityProvider.token=", "--LabApp.news_url=None", "--ServerApp.port_retries=0"]
    home = {
        "JUPYTER_CONFIG_DIR": str(folder / ".config"),
        "JUPYTER_DATA_DIR": str(folder / ".data"),
    }
    address = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "jupyterlab", *options]
    server = subprocess.Popen(command, env=os.environ | home)
    try:
        for _ in range(300):
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


def test_run_all_and_save(folder, lab, browser):
    path, pair = folder / f"{LESSON}.ipynb", folder / f"{LESSON}.md"
    code = [c for c in nbformat.read(path, as_version=4).cells if c.cell_type == "code"]
    solutions = ["solution" in cell.metadata.get("tags", []) for cell in code]
    shown = max(n for n, folded in enumerate(solutions, 1) if not folded)
    text = pair.read_bytes().decode()
    page = browser.new_page(viewport={"width": 1400, "height": 1000})
    page.set_default_timeout(120_000)
    page.goto(f"{lab}/lab/workspaces/test/tree/{LESSON}.ipynb")
    wait(page, IDLE)
    page.click(".lm-MenuBar-itemLabel:text-is('Run')")
    page.click(".lm-Menu-itemLabel:text-is('Run All Cells')")
    wait(page, f".jp-InputPrompt:text-is('[{shown}]:')")
    wait(page, IDLE)
    assert page.locator(".jp-InputPlaceholder").count() > 0  # a solution, folded
    page.keyboard.press("Control+s")
    wait(page, SAVED)
    code = [c for c in nbformat.read(path, as_version=4).cells if c.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    assert not [o for cell in code for o in cell.outputs if o.output_type == "error"]
    assert pair.read_bytes().decode() == text  # written at the same time
    hidden = [cell.metadata.get("jupyter", {}).get("source_hidden", False) for cell in code]
    folded = [{"solution", "hide-input"} & {*cell.metadata.get("tags", [])} for cell in code]
    assert hidden == [bool(tags) for tags in folded]
