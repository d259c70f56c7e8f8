"""The four lists of what dynconv needs agree, and importing it loads none of the heavy ones."""

import subprocess
import sys
import tomllib

import pytest
import yaml
from conftest import ROOT
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

# What conda-forge calls a package when it is not the name on PyPI.
CONDA_CPU = {"torch": "pytorch", "matplotlib": "matplotlib-base"}
CONDA_GPU = CONDA_CPU | {"torch": "pytorch-gpu", "cupy-cuda13x": "cupy"}
# The CUDA in cupy-cuda13x's name is a package of its own there.
CUDA = {"cuda-version": SpecifierSet(">=13,<14")}


def bounds(*extras: str) -> dict[str, SpecifierSet]:
    """Name and bounds of pyproject's dependencies, with those of the extras."""
    lines = list(PROJECT["dependencies"])
    for extra in extras:
        lines += PROJECT["optional-dependencies"][extra]
    found = {canonicalize_name(r.name): r.specifier for r in map(Requirement, lines)}
    found.pop("dynconv", None)  # dynconv[lessons,book,tune] inside the extra "test"
    return found


def conda(file: str) -> dict[str, SpecifierSet]:
    """Name and bounds of a conda environment's packages, Python among them."""
    lines = yaml.safe_load((ROOT / file).read_text(encoding="utf-8"))["dependencies"]
    editable, *others = lines.pop()["pip"]
    assert editable == "-e ."
    pairs = [line.partition(" ") for line in lines]
    return {name: SpecifierSet(bound) for name, _, bound in pairs} | {
        r.name: r.specifier for r in map(Requirement, others)
    }


@pytest.mark.parametrize(
    ("file", "extras", "names", "more"),
    [
        ("environment.yml", ["lessons", "book", "tune", "test"], CONDA_CPU, {}),
        ("environment-gpu.yml", ["lessons", "book", "tune", "test", "gpu"], CONDA_GPU, CUDA),
    ],
    ids=["cpu", "gpu"],
)
def test_conda_environment_equals_pyproject(file, extras, names, more):
    python = {"python": SpecifierSet(PROJECT["requires-python"]), "pip": SpecifierSet()}
    wanted = {names.get(name, name): bound for name, bound in bounds(*extras).items()}
    assert conda(file) == python | wanted | more


def test_constraints_pin_every_dependency_within_its_bounds():
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    assert len(set(lines)) == len(lines)
    pins = dict(line.split("==") for line in lines if not line.startswith("#"))
    pins = {canonicalize_name(name): version for name, version in pins.items()}
    for name, bound in bounds("lessons", "book", "tune", "test").items():
        assert name in pins, f"{name} has no pin in constraints.txt"
        assert pins[name] in bound, f"{name}=={pins[name]} is outside {bound}"


@pytest.mark.parametrize(
    ("modules", "absent"),
    [
        (
            "dynconv, dynconv.ops, dynconv.layers, dynconv.models",
            "matplotlib tokenizers sacrebleu yaml pydantic cupy tensorboard",
        ),
        (
            "dynconv.cli, dynconv.text.manifest, dynconv.text.corpus, dynconv.text.fetch",
            "torch tokenizers pydantic pooch",
        ),
    ],
    ids=["models", "list of corpora"],
)
def test_import_loads_no_more_than_it_needs(modules, absent):
    code = (
        f"import sys, {modules};print([name for name in {absent.split()} if name in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip() == "[]"
