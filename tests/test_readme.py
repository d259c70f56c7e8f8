"""What the README shows is what there is: figure, code, commands, lessons and numbers."""

import base64
import re
import shlex

import nbformat
import pytest
from conftest import ROOT
from torch.distributed import run as torchrun

from dynconv import ledger
from dynconv.cli import parser

README = (ROOT / "README.md").read_text(encoding="utf-8")
BENCH = ledger.read("bench-ops")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def test_the_figure_is_the_lessons():
    notebook = nbformat.read(ROOT / "lessons" / "11_dynamicconv.ipynb", as_version=4)
    outputs = [out for cell in notebook.cells for out in cell.get("outputs", [])]
    figures = [out.data["image/png"] for out in outputs if "image/png" in out.get("data", {})]
    shown = (ROOT / "book" / "_static" / "mixing-matrices.png").read_bytes()
    assert shown == base64.b64decode(figures[0])


@pytest.mark.parametrize("code", [text for language, text in BLOCKS if language == "python"])
def test_its_code_runs(code):
    names = {}
    exec(code, names)
    assert names["y"].shape == (2, 1, 512)
    assert names["state"].window(30).shape == (2, 30, 512)  # K - 1 positions, as its comment says


def commands() -> list[str]:
    lines = "\n".join(text for _, text in BLOCKS).splitlines()
    return [line.split("#")[0] for line in lines if line.startswith("dynconv ")]


@pytest.mark.parametrize("command", commands())
def test_its_commands_exist(command):
    assert len(commands()) >= 5
    _, *arguments = shlex.split(command)
    try:
        _, rest = parser().parse_known_args(arguments)
    except SystemExit as ended:  # --list, as --help, ends here
        assert ended.code == 0 and arguments[-1] == "--list"
    else:
        assert not any(word.startswith("-") for word in rest)


def test_its_torchrun_lines_are_the_same_command():
    lines = "\n".join(text for _, text in BLOCKS).replace("\\\n", " ").splitlines()
    launches = [line for line in lines if line.startswith("torchrun ")]
    assert len(launches) == 2
    for line in launches:
        options, _, command = line.partition(" -m dynconv ")
        torchrun.get_args_parser().parse_args([*shlex.split(options)[1:], "script"])
        _, rest = parser().parse_known_args(shlex.split(command))
        assert not any(word.startswith("-") for word in rest)


def test_its_numbers_on_training_are_the_recorded_ones():
    names = "ranks", "kills", "loop", "time-left", "prepare"
    ranks, kills, loop, left, prepare = (ledger.read(name)["numbers"] for name in names)
    differences = [d for mixer in ranks["largest difference"].values() for d in mixer.values()]
    assert f"more than {max(differences):.1e}".replace("e-0", "e-") in " ".join(README.split())
    assert kills["one process"]["kills"] == kills["one of two processes"]["kills"] == 50
    assert f"add {loop['bfloat16']['overhead']:.1%}" in " ".join(README.split())
    said, took = (left[name][0] for name in ("said_s", "took_s"))
    assert f"({abs(said / took - 1):.0%} off after 100 updates" in README
    assert f"{prepare['peak_mb'] / 1e3:.1f} GB" in README


def test_it_lists_every_lesson():
    lessons = {f"lessons/{path.name}" for path in (ROOT / "lessons").glob("*.md")}
    assert set(re.findall(r"\((lessons/\w+\.md)\)", README)) == lessons


def test_its_links_lead_somewhere():
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert (ROOT / target).exists(), target


def test_its_signature_is_that_of_the_recorded_runs():
    assert ledger.read("demo")["numbers"]["signature"] in README


OPERATORS = {"LightConv": "light_conv", "DynamicConv": "dynamic_conv", "TaLK": "talk_conv"}


def bench(operator: str, impl: str, T: int) -> dict:
    """A row of the recorded bench."""
    (shape,) = (
        shape for shape in BENCH["numbers"]["shapes"] if (shape["T"], shape["C"]) == (T, 1024)
    )
    rows = shape["results"]
    (row,) = (row for row in rows if (row["operator"], row["impl"]) == (operator, impl))
    return row


@pytest.mark.parametrize("title", OPERATORS)
def test_its_speeds_are_those_of_the_recorded_bench(title):
    (row,) = re.findall(rf"^\| {title} \|.*$", README, re.MULTILINE)
    cells = [cell.strip() for cell in row.strip("|").split("|")][1:]
    expected = []
    for T in (10, 100, 1000, 10000):
        measured = bench(OPERATORS[title], "native", T)
        ratios = [measured[way]["attention_by_this"] for way in ("forward", "forward_backward")]
        digits = (f"{ratio:.2g}" if ratio < 100 else f"{ratio:.0f}" for ratio in ratios)
        expected.append(", ".join(digits))
    assert cells == expected
    assert BENCH["device"].split(" (")[0] in README and BENCH["date"] in README
