"""The appendix on data says what data/manifest.yaml says."""

import re

from conftest import ROOT

from dynconv.text.catalog import SPLITS, Entry, entries

PAGE = (ROOT / "book/data.md").read_text(encoding="utf-8")
KINDS = {
    "translation": "translation",
    "language-model": "language models",
    "summarisation": "summaries",
}


def line(entry: Entry) -> str:
    known = entry.sentences or {}
    counts = ", ".join(f"{known[split]:,}" if split in known else "–" for split in SPLITS)
    return f"| `{entry.name}` | {KINDS[entry.kind]} | {counts} | {entry.licence} |"


def test_the_tables_are_the_manifests():
    ours, theirs = PAGE.partition("## What the papers used")[::2]
    for text, shipped in ((ours, True), (theirs, False)):
        lines = re.findall(r"^\| `.*$", text, re.MULTILINE)
        assert lines == [line(entry) for entry in entries() if entry.shipped == shipped]


def test_what_is_without_an_address_is_named():
    lacking = [
        entry.name
        for entry in entries()
        if not entry.shipped and not all(file.urls for file in entry.files)
    ]
    assert lacking == ["duc-2004"] and "`duc-2004` has no address" in PAGE
