"""What a release consists of: versions, licences, the index's README, and what workflows call."""

import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib.util import module_from_spec, spec_from_file_location

import pytest
import yaml
from conftest import ROOT

import dynconv
from dynconv.teach.book import read_config

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
ADDRESS = "https://example.org/owner/dynconv"


def hook():
    """The module hatch_build."""
    spec = spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def absolute(text: str, address: str | None) -> str:
    return hook().absolute(text, address)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[a lesson](lessons/11.md)", f"[a lesson]({ADDRESS}/blob/main/lessons/11.md)"),
        ("![a figure](book/x.png)", f"![a figure]({ADDRESS}/raw/main/book/x.png)"),
        ("[PyTorch](https://pytorch.org)", "[PyTorch](https://pytorch.org)"),
        ("[below](#on-a-gpu)", "[below](#on-a-gpu)"),
    ],
)
def test_relative_links_become_absolute(text, expected):
    assert absolute(text, ADDRESS) == expected


def test_without_an_address_the_index_has_no_dead_links():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert re.search(r"\]\((?!https?://|#)", readme)
    shown = absolute(readme, None)
    assert not re.search(r"\]\((?!https?://|#)", shown)
    for words in "Four mixing matrices", "the row's shades":  # of a picture that is not there
        assert words in readme and words not in shown


def test_the_index_shows_what_an_installed_package_has():
    """Neither the lessons nor a link to a section about them."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = hook().installed(readme)
    assert "## Lessons" in readme and "(#lessons)" in readme
    assert "## Lessons" not in shown and "(#lessons)" not in shown
    assert "pip install " in shown and "## As a library" in shown
    assert hook().installed("## On a GPU\n[here](#on-a-gpu)") == "## On a GPU\n[here](#on-a-gpu)\n"


def test_every_data_set_brings_its_licence():
    files = {path for pattern in PROJECT["license-files"] for path in ROOT.glob(pattern)}
    shipped = {path.parent for path in (ROOT / "data").glob("*/README.md")} - {
        ROOT / "data/results"
    }
    assert len(shipped) >= 4
    assert shipped <= {path.parent for path in files}


def test_the_citation_names_the_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == dynconv.__version__


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_call_what_exists(path):
    assert {"test", "book", "release"} <= {each.stem for each in WORKFLOWS}
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
    jobs = yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"]
    commands = "\n".join(step.get("run", "") for job in jobs.values() for step in job["steps"])
    assert commands.strip()
    assert set(re.findall(r"^make (\w+)", commands, re.M)) <= set(targets)
    files = re.findall(r"tests/[\w/]+\.py", commands)
    assert bool(files) == (path.stem == "test")
    assert all((ROOT / file).exists() for file in files)
    for line in re.findall(r"--resolution lowest-direct -e \. (.*)", commands):
        # A package without a bound would be its first release, which does not build today.
        assert all(">=" in package for package in shlex.split(line))


def test_the_workflow_counts_the_instructions_of_the_cuda_kernels():
    """Without NVIDIA's compiler and disassembler, the tests that hold them to the record skip."""
    text = (ROOT / ".github" / "workflows" / "test.yml").read_text(encoding="utf-8")
    (extras,) = re.findall(r"pip install -e '\.\[(.*)\]'", text)
    assert {"nvrtc", "test"} <= set(extras.split(","))


@pytest.mark.parametrize("address", [None, ADDRESS])
def test_the_book_has_buttons_only_with_an_address(address, tmp_path):
    (tmp_path / "book").mkdir()
    shutil.copy(ROOT / "book/_config.yml", tmp_path / "book")
    urls = f'urls = {{Repository = "{address}"}}' if address else ""
    (tmp_path / "pyproject.toml").write_text(f"[project]\n{urls}\n", encoding="utf-8")
    config = read_config(tmp_path)
    for button in "binderhub_url", "colab_url":
        assert (button in config["launch_buttons"]) == bool(address)
    assert config["html"]["use_repository_button"] == bool(address)
    assert config.get("repository", {}).get("url") == address


def test_the_wheel_has_the_package_and_nothing_beside_it(tmp_path):
    """Its data is inside, too; tests, lessons and results stay in the repository."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    package, record = "dynconv", f"dynconv-{dynconv.__version__}.dist-info"
    assert {name.partition("/")[0] for name in names} == {package, record}
    wanted = (
        "py.typed",
        "kernels/cpu/conv.c",
        "recipes/help-de-en-dynamic.yaml",
        "data/manifest.yaml",
    )
    assert {f"dynconv/{name}" for name in wanted} <= set(names)
