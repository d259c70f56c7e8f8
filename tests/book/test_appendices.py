"""The appendices say what the manifest of the data, the lessons and the simulator say."""

import re
import sys

import pytest
from conftest import ROOT

from dynconv.lab import simulate
from dynconv.text.corpus import SPLITS
from dynconv.text.manifest import CorpusEntry, read_manifest

DATA = (ROOT / "book/data.md").read_text(encoding="utf-8")
CUDA = (ROOT / "book/cuda_on_a_cpu.md").read_text(encoding="utf-8")
READING = (ROOT / "book/reading.md").read_text(encoding="utf-8")
KINDS = {
    "translation": "translation",
    "language-model": "language models",
    "summarisation": "summaries",
}


def line(entry: CorpusEntry) -> str:
    known = entry.sentences
    counts = ", ".join(f"{known[split]:,}" if split in known else "–" for split in SPLITS)
    return f"| `{entry.name}` | {KINDS[entry.kind]} | {counts} | {entry.licence} |"


def test_the_tables_are_the_manifests():
    ours, theirs = DATA.partition("## What the papers used")[::2]
    for text, shipped in ((ours, True), (theirs, False)):
        lines = re.findall(r"^\| `.*$", text, re.MULTILINE)
        entries = read_manifest().values()
        assert lines == [line(entry) for entry in entries if entry.shipped == shipped]


def test_what_is_without_an_address_is_named():
    lacking = [
        entry.name
        for entry in read_manifest().values()
        if not entry.shipped and not all(file.urls for file in entry.files)
    ]
    assert lacking == ["duc-2004"] and "`duc-2004` has no address" in DATA


CITE = r"\{cite(?::[tp])?\}`([^`]+)`"


def test_the_reading_list_says_a_sentence_on_each_work_that_is_cited():
    entries = re.findall(rf"^- {CITE} (.+\.)$", READING, re.MULTILINE)
    assert all(len(sentence.split()) >= 6 for _, sentence in entries)
    listed = [key for key, _ in entries]
    assert len(listed) == len(set(listed)) == READING.count("{cite")
    cited = set()
    for text in [*(ROOT / "lessons").glob("*.md"), ROOT / "book/index.md"]:
        for keys in re.findall(CITE, text.read_text(encoding="utf-8")):
            cited |= {key.strip() for key in keys.split(",")}
    assert set(listed) == cited


def test_the_cuda_example(capsys):
    if simulate.why_unavailable():
        pytest.skip(simulate.why_unavailable())
    blocks = re.findall(r"^```python\n(.*?)^```$", CUDA, re.MULTILINE | re.DOTALL)
    names = {}
    exec(compile("\n".join(blocks), "cuda_on_a_cpu.md", "exec"), names)
    said = capsys.readouterr().out.replace("float[", "float [")  # Clang has no space
    shown = re.search(r"^```text\n(.*?)^```$", CUDA, re.MULTILINE | re.DOTALL)[1]
    assert len(blocks) == 5 and said.split() == shown.split()
    if sys.platform == "linux":  # elsewhere static shared memory is not filled with NaN
        right = (~names["backward"].isnan()).nonzero().flatten()
        assert right.tolist() == [0, 64]
