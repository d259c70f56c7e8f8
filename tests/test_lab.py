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
IDLE = ".jp-NotebookPanel .jp-Notebook-ExecutionIndicator[data-status=idle]"
RAN = """() => {
    const prompts = [...document.querySelectorAll(".jp-CodeCell .jp-InputPrompt")];
    const busy = prompts.some(prompt => prompt.textContent.includes("[*]"));
    return !busy && document.querySelector(".jp-Notebook-ExecutionIndicator[data-status=idle]")
        && prompts.some(prompt => /\\d/.test(prompt.textContent));
}"""


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
    log = (folder / "log").open("w")
    command = [sys.executable, "-m", "jupyterlab", *options]
    server = subprocess.Popen(command, env=os.environ | home, stdout=log, stderr=log)
    try:
        for _ in range(300):
            try:
                urllib.request.urlopen(f"{address}/api").close()
                break
            except OSError:
                assert server.poll() is None, (folder / "log").read_text()
                time.sleep(0.2)
        yield address
    finally:
        server.terminate()
        server.wait(20)


@pytest.mark.skipif(
    "DYNCONV_LAB" not in os.environ,
    reason="at times JupyterLab does not start to run the cells: DYNCONV_LAB=1 tries it",
)
def test_run_all_and_save(folder, lab, browser):
    text = (folder / f"{LESSON}.md").read_bytes()
    page = browser.new_page(viewport={"width": 1400, "height": 1000})
    page.goto(f"{lab}/lab/workspaces/test/tree/{LESSON}.ipynb", timeout=120_000)
    page.wait_for_selector(IDLE, timeout=60_000)
    page.click(".lm-MenuBar-item:has-text('Run')")
    page.click(".lm-Menu-item:has-text('Run All Cells'):visible >> nth=0")
    page.wait_for_timeout(1000)
    page.wait_for_function(RAN, timeout=120_000)
    page.keyboard.press("Control+s")
    path = folder / f"{LESSON}.ipynb"
    for _ in range(100):
        cells = [c for c in nbformat.read(path, as_version=4).cells if c.cell_type == "code"]
        if all(cell.execution_count for cell in cells):
            break
        page.wait_for_timeout(200)
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert not [o for cell in cells for o in cell.outputs if o.output_type == "error"]
    assert (folder / f"{LESSON}.md").read_bytes() == text  # its pair, written at the same time
