"""What the README shows is what there is: code, commands, lessons and numbers."""

import re
import shlex
import tomllib
from itertools import product
from statistics import median

import pytest
from conftest import ROOT
from torch.distributed import run as torchrun

from dynconv.cli import make_parser
from dynconv.lab import ledger

README = (ROOT / "README.md").read_text(encoding="utf-8")
BENCH = ledger.read("bench-ops")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def test_its_code_runs():
    names = {}
    exec("\n".join(text for language, text in BLOCKS if language == "python"), names)
    assert names["logits"].shape == (2, 10, 4000)
    assert names["y"].shape == (2, 1, 512)
    assert names["state"].last(30).shape == (2, 30, 512)  # K - 1 positions, as its comment says


def commands() -> list[str]:
    lines = "\n".join(text for _, text in BLOCKS).splitlines()
    return [line.split("#")[0] for line in lines if line.startswith("dynconv ")]


@pytest.mark.parametrize("command", commands())
def test_its_commands_exist(command):
    assert len(commands()) >= 5
    _, *arguments = shlex.split(command)
    _, rest = make_parser().parse_known_args(arguments)
    assert not any(word.startswith("-") for word in rest)


def test_its_torchrun_lines_are_the_same_command():
    lines = "\n".join(text for _, text in BLOCKS).replace("\\\n", " ").splitlines()
    launches = [line for line in lines if line.startswith("torchrun ")]
    assert len(launches) == 2
    for line in launches:
        options, _, command = line.partition(" -m dynconv ")
        torchrun.get_args_parser().parse_args([*shlex.split(options)[1:], "script"])
        _, rest = make_parser().parse_known_args(shlex.split(command))
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


def test_it_says_from_where_to_install():
    """As long as pyproject.toml names no address, nothing can be cloned or found on an index."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    published = "urls" in project
    text = " ".join(README.split())
    lines = "\n".join(block for _, block in BLOCKS)
    assert ("not on a package index yet, and the repository has no public address" in text) != (
        published
    )
    assert ("git clone" in lines) == ("pip install dynconv\n" in lines) == published
    assert published or re.search(
        r"^pip install \.\s.*pip wheel --no-deps -w dist \.$", lines, re.M
    )


def test_it_lists_every_lesson():
    lessons = {f"lessons/{path.name}" for path in (ROOT / "lessons").glob("*.md")}
    assert set(re.findall(r"\((lessons/\w+\.md)\)", README)) == lessons


def test_its_links_lead_somewhere():
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert (ROOT / target).exists(), target


def test_its_signature_is_that_of_the_recorded_runs():
    assert ledger.read("demo")["numbers"]["signature"] in README


def test_it_and_the_recipe_give_the_recorded_bleu_of_the_demo():
    demo = ledger.read("demo")["numbers"]
    low, high = demo["bleu_interval"]
    assert f"BLEU = {demo['bleu']:.2f} [{low:.2f}, {high:.2f}]" in README
    recipe = (ROOT / "dynconv" / "recipes" / "help-de-en-dynamic.yaml").read_text(encoding="utf-8")
    assert f"{demo['bleu']:.2f} BLEU on the test split" in recipe
    runs = ledger.read("help-de-en-trials")["numbers"]["runs"]
    (trial,) = (run["test_bleu_beam5"] for run in runs if run["name"] == "F")
    assert f"#   {trial:.1f}   this\n" in recipe


OPERATORS = {"LightConv": "light_conv", "DynamicConv": "dynamic_conv", "TaLK": "talk_conv"}


LENGTHS = (10, 100, 1000, 10_000)


def speeds(operator: str, T: int, key: str = "attention_by_this", record: dict = BENCH) -> list:
    """Of our C kernel, forward and with backward, as it is recorded."""
    found = [
        [row["forward"][key], row["forward_backward"][key]]
        for shape in record["numbers"]["shapes"]
        for row in shape["results"]
        if (shape["T"], row["operator"], row["impl"]) == (T, operator, "cpu")
    ]
    assert len(found) == 1
    return found[0]


@pytest.mark.parametrize("title", OPERATORS)
def test_its_speeds_are_those_of_the_recorded_bench(title):
    (row,) = re.findall(rf"^\| {title} \|.*$", README, re.MULTILINE)
    cells = [cell.strip() for cell in row.strip("|").split("|")][1:]
    expected = []
    for T in LENGTHS:
        ratios = speeds(OPERATORS[title], T)
        digits = (f"{ratio:.2g}" if ratio < 100 else f"{ratio:.0f}" for ratio in ratios)
        expected.append(", ".join(digits))
    assert cells == expected
    assert BENCH["device"].split(" (")[0] in README and BENCH["date"] in README


def test_it_says_how_far_the_rounds_and_another_day_are_off():
    day_before = ledger.read("bench-ops-2026-11-21")
    off, shares = [], []
    for operator, T in product(OPERATORS.values(), LENGTHS):
        medians = speeds(operator, T)
        before = speeds(operator, T, record=day_before)
        shares += [old / new for old, new in zip(before, medians, strict=True)]
        if T < 10_000:
            ranges = speeds(operator, T, "attention_by_this_range")
            pairs = zip(ranges, medians, strict=True)
            off += [abs(edge / middle - 1) for edges, middle in pairs for edge in edges]
    text = " ".join(README.split())
    furthest = f"the furthest is {max(off):.0%} away"
    assert f"within {median(off):.0%} of the median, and {furthest}" in text
    assert f"gave {min(shares):.0%} to {max(shares):.0%} of these ratios" in text
