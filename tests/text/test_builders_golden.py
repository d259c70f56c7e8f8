"""The real IWSLT'14 evaluation and validation text, made again from text without tokens."""

import re
from pathlib import Path

import pytest
from conftest import ROOT
from helpers.raw_sets import lines, put, sgm

from dynconv.text.builders import build_corpus, iwslt

SENTENCE = re.compile(r"(\w+) \. ([^\W\d_])")
"""A full stop between sentences; without the capital after it, it seems to end an abbreviation."""


@pytest.fixture(scope="module")
def real() -> Path:
    folder = ROOT.parent / "shared" / "benchmarks" / "iwslt14-deen"
    if not folder.is_dir():
        pytest.skip("shared IWSLT'14 folder not present")
    return folder


def with_capitals(raw: list[str], words: list[str]) -> list[str]:
    """Lower-cased text with a capital wherever the tokenised text begins a sentence in a line."""
    lines = []
    for line, tokens in zip(raw, words, strict=True):
        for before, first in SENTENCE.findall(tokens):
            line = line.replace(f"{before}. {first}", f"{before}. {first.upper()}", 1)
        lines.append(line)
    return lines


def rebuilt(real: Path, tmp_path: Path) -> dict[str, list[tuple[str, str]]]:
    """Where our lines and the real ones differ: test as evaluation sets, valid as the talks."""
    raw, out = tmp_path / "raw", tmp_path / "out"
    for side in iwslt.LANGUAGES:
        files = {s: (f"{s}.detok.{side}", f"{s}.{side}") for s in ("test", "valid")}
        text = {s: with_capitals(*(lines(real, name) for name in files[s])) for s in files}
        put(raw, f"de-en/train.tags.de-en.{side}", "<url>x</url>", *text["valid"])
        for number, name in enumerate(iwslt.TESTS):
            part = text["test"][number * 1350 : (number + 1) * 1350]
            sgm(raw, f"de-en/IWSLT14.{name}.de-en.{side}.xml", *part)
    counts = {"train": 6967, "valid": 316, "test": 6750}
    assert build_corpus("iwslt14-de-en", raw, out) == counts
    found = {f"test.{side}": lines(out, f"test.{side}") for side in iwslt.LANGUAGES}
    for side in iwslt.LANGUAGES:  # every 23rd of the clean pairs: put them back in their places
        valid, train = iter(lines(out, f"valid.{side}")), iter(lines(out, f"train.{side}"))
        found[f"valid.{side}"] = [next(train if n % 23 else valid) for n in range(1, 7284)]
    return {name: different(found[name], lines(real, name)) for name in found}


def different(found: list[str], real: list[str]) -> list[tuple[str, str]]:
    return [pair for pair in zip(found, real, strict=True) if pair[0] != pair[1]]


def test_iwslt_equals_the_real_files(real, tmp_path):
    """All but 11 of 28,066 lines. In these the lower-cased raw text lost more than sentences: 5
    abbreviations that German spells with a capital (Dr. Nr. Art.), and 6 ". ." written ".."."""
    left = rebuilt(real, tmp_path)
    counts = {name: len(pairs) for name, pairs in left.items()}
    assert counts == {"test.de": 4, "test.en": 0, "valid.de": 6, "valid.en": 1}
    pairs = [pair for pairs in left.values() for pair in pairs]
    assert all(found.replace(" ", "") == real.replace(" ", "") for found, real in pairs)
    abbreviations = [pair for pair in pairs if re.search(r"\b(dr|nr|art) \.", pair[0])]
    dots = [pair for pair in pairs if ".." in pair[0]]
    assert len(abbreviations) == 5 and len(dots) == 6


@pytest.mark.parametrize("name, count", [("test.de", 474), ("test.en", 248)])
def test_without_capitals_only_sentences_inside_a_line_differ(real, name, count):
    """93 % and 96 % of 6,750 lines equal the real ones; of the others all but those above do once
    a full stop before a word is joined to what it follows."""
    split, side = name.split(".")
    found = [iwslt.lower_words(line, side) for line in lines(real, f"{split}.detok.{side}")]
    pairs = different(found, lines(real, name))
    assert len(pairs) == count
    joined = [[re.sub(r"(?<=[^ .]) \.(?= \w)", ".", text) for text in pair] for pair in pairs]
    assert sum(found != real for found, real in joined) == {"test.de": 4, "test.en": 0}[name]
