"""The ledger, data/results: one form, commands that still exist, and every number of the pages."""

import json
import math
import re
import shlex
from datetime import date
from importlib.util import find_spec
from pathlib import Path
from statistics import mean

import pytest
from conftest import ROOT

from dynconv import cli, paths
from dynconv.cli import make_parser
from dynconv.config import load_experiment, load_recipe, load_row, require_experiment
from dynconv.lab import ledger
from dynconv.lab.bench import train as bench_train

FILES = sorted((ROOT / "data/results").glob("*.json"))
FIELDS = ["what", "command", "commit", "date", "device", "versions", "load", "seeds", "numbers"]
PAGES = ("README.md", "book/results.md")
ELSEWHERE = {
    "Wu et al. 2019, Table 1": ["29.7", "29.3"],
    "Wu et al. 2019, Table 2": ["34.4", "34.8", "35.2"],
    "IWSLT'14: pairs; lines that test_builders_golden.py compares": ["160,239", "28,066"],
    "the shipped corpora: test_corpus.py": ["8,207", "30,247", "1,699"],
    "the first 12 words: test_score.py": ["34.2", "15.7", "29.5"],
}
"""what the pages quote that no command of ours has measured"""

each_file = pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)


def numbers(found) -> list[float]:
    """Every number within what a file holds; also those that its sentences mention."""
    if isinstance(found, dict | list):
        inner = found.values() if isinstance(found, dict) else found
        return [number for each in inner for number in numbers(each)]
    if isinstance(found, str):
        return [float(text.replace(",", "")) for text in re.findall(r"\d[\d,]*\.?\d*", found)]
    return [] if found is None else [found]


@each_file
def test_a_file_has_the_fields_of_the_ledger(path):
    found = ledger.read(path.stem)
    assert list(found) == FIELDS
    assert found["what"] and found["device"] and found["numbers"]
    assert date.fromisoformat(found["date"]) <= date.today()
    assert re.fullmatch(r"[0-9a-f]{40}(\+changes)?", found["commit"])
    assert {"python", "torch"} <= found["versions"].keys()
    assert list(found["load"]) == ["before", "after"]
    assert found["seeds"] == sorted(set(found["seeds"]))
    assert all(map(math.isfinite, numbers(found["numbers"])))


def test_a_new_record_has_them_too(tmp_path):
    found = ledger.new_record(
        "a sum", "dynconv doctor", {"sum": 3}, seeds=[1], versions={"gcc": "14"}
    )
    ledger.write(tmp_path / "sum.json", found)
    written = json.loads((tmp_path / "sum.json").read_text(encoding="utf-8"))
    assert written == found and list(written) == FIELDS
    assert list(written["load"]) == ["before", "after"]
    assert {"python", "torch", "gcc"} == written["versions"].keys()


def test_records_of_an_installed_package_go_to_the_working_directory(tmp_path, monkeypatch):
    """Its data/results has what the wheel ships: the records of the GPUs that it was tested on."""
    assert ledger.results_folder() == ROOT / "data/results"
    package = tmp_path / "site-packages" / "dynconv"
    (package / "data" / "results").mkdir(parents=True)
    (package / "data" / "manifest.yaml").touch()
    (package / "data" / "results" / "gpu-tests-sm_90.json").touch()
    monkeypatch.setattr(paths, "PACKAGE", package)
    assert ledger.results_folder() == Path()


def commands() -> list:
    return [
        pytest.param(line, id=f"{path.stem}-{number}")
        for path in FILES
        for number, line in enumerate(ledger.read(path.stem)["command"].splitlines())
    ]


@pytest.mark.parametrize("line", commands())
def test_its_command_is_there(line):
    words = shlex.split(line)
    while re.fullmatch(r"[A-Z_]+=\S+", words[0]):  # the environment
        del words[0]
    program, *arguments = words
    if program == "make":
        assert re.search(rf"^{arguments[0]}:", (ROOT / "Makefile").read_text(), re.MULTILINE)
    elif program == "joeynmt":
        text = (ROOT / arguments[1]).read_text(encoding="utf-8")
        assert f'joeynmt_version: "{ledger.read("joeynmt")["versions"]["joeynmt"]}"' in text
    elif line == "pytest -m gpu":
        assert '"gpu: needs an NVIDIA GPU' in (ROOT / "pyproject.toml").read_text()
    elif program == "pytest":
        (file,) = (ROOT / word for word in arguments if word.startswith("tests/"))
        if "-k" in arguments:
            assert arguments[arguments.index("-k") + 1] in file.read_text(encoding="utf-8")
    elif program == "python":
        assert arguments[0] == "-m" and find_spec(arguments[1])
    else:
        assert program == "dynconv"
        options, rest = make_parser().parse_known_args(arguments)
        assert not any(word.startswith("-") for word in rest)
        overrides = [*getattr(options, "overrides", []), *rest]
        if hasattr(options, "recipe"):
            load_recipe(options.recipe, overrides)
        if arguments[0] == "experiment":
            experiment = load_experiment(require_experiment(options.name))
            for row in experiment.rows:
                load_row(experiment, row, overrides)


@pytest.mark.parametrize(
    ("command", "record"),
    [
        ("experiment 'my tables/mine.yaml' train.lr=2e-3 --seeds 1", "experiment-mine"),
        ("tune 'my tables/mine.yaml:small' --space space.yaml --trials 1", "tune-mine-small"),
        ("bench train 'my tables/mine.yaml:small' train.lr=2e-3 --updates 2", "bench-train"),
    ],
)
def test_a_recorded_command_repeats_the_measurement_of_a_file(
    command, record, recipe_file, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ledger, "results_folder", lambda: tmp_path)
    monkeypatch.setattr(bench_train, "SIDE", 64)
    (tmp_path / "my tables").mkdir()
    table = f"{{source: mine, metric: BLEU, base: {recipe_file}, rows: [{{name: small}}]}}"
    (tmp_path / "my tables" / "mine.yaml").write_text(f"# Mine.\n{table}\n", encoding="utf-8")
    (tmp_path / "space.yaml").write_text("settings: {train.lr: [1.0e-3]}", encoding="utf-8")
    path = tmp_path / f"{record}.json"
    assert cli.main(shlex.split(command)) == 0
    recorded = ledger.read_file(path)["command"]
    assert recorded == f"dynconv {command}"
    assert cli.main(shlex.split(recorded)[1:]) == 0
    assert ledger.read_file(path)["command"] == recorded


def quoted(text: str) -> set[str]:
    """The numbers of a page with a point or comma in them; not those in code, names and links."""
    text = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"`[^`]*`|\]\([^)]*\)|\d+ (and|or) \d+", "", text)
    return set(re.findall(r"(?<![\w.,-])(?:\d{1,3}(?:,\d{3})+|\d+\.\d+)(?![\w.]*\w)", text))


def means(name: str) -> list[float]:
    """Over seeds, of each metric of each row of an experiment.

    Of tuned mixers the first seed won the search, so the pages leave it out.
    """
    found = ledger.read(name)["numbers"]
    first = 1 if name.endswith("-tuned") else 0
    of_rows = [row["metrics"][first:] for row in found.get("rows", ()) if "metrics" in row]
    return [mean(each[key] for each in metrics) for metrics in of_rows for key in metrics[0]]


def is_in(known: list[float], text: str) -> bool:
    """Whether the ledger has this number, rounded as the text has it: itself, in M, k or %."""
    value, digits = float(text.replace(",", "")), len(text.partition(".")[2])
    scaled = (number * scale for number in known for scale in (1, 1e-6, 1e-3, 100))
    return any(math.isclose(round(number, digits), value, abs_tol=1e-9) for number in scaled)


@pytest.mark.parametrize("page", PAGES)
def test_the_numbers_of_a_page_are_in_the_ledger(page):
    shown = quoted((ROOT / page).read_text(encoding="utf-8"))
    assert len(shown) > 20
    known = [x for path in FILES for x in numbers(ledger.read(path.stem))]
    known += [x for path in FILES for x in means(path.stem)]
    elsewhere = {text for texts in ELSEWHERE.values() for text in texts}
    assert not {text for text in shown - elsewhere if not is_in(known, text)}


def test_a_number_that_is_not_in_the_ledger_is_found():
    shown = quoted("43.48 BLEU, `12.34` in code, [text](5.6.md), 2,812,800 parameters: 7.777 s.")
    assert shown == {"43.48", "2,812,800", "7.777"}
    assert not is_in([43.48, 2812800.0], "7.777") and is_in([2812800], "2.81")


def test_files_named_in_text_exist():
    recipes = sorted((ROOT / "dynconv/recipes").glob("*.yaml"))
    for page in (*(ROOT / page for page in PAGES), *recipes):
        text = page.read_text(encoding="utf-8")
        for name in re.findall(r"data/results/([a-z0-9-]+)\.(?:json|png)", text):
            assert ROOT / f"data/results/{name}.json" in FILES, (page.name, name)
