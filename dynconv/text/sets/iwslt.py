"""IWSLT'14 De-En: lower-cased TED talks, as fairseq's prepare-iwslt14.sh has them."""

import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from dynconv.text.corpus import stream_lines
from dynconv.text.sets.moses import tokenize
from dynconv.text.sets.raw import find, segments, words
from dynconv.text.sets.splits import fits, hold_out, write

LANGUAGES = ("de", "en")
TESTS = ("TED.dev2010", "TEDX.dev2012", "TED.tst2010", "TED.tst2011", "TED.tst2012")
ABOUT = re.compile(r"<(url|talkid|keywords|speaker|reviewer|translator)\b")
TAGS = re.compile(r"</?(title|description)>")


def iwslt14_de_en(raw: Path, out: Path) -> dict[str, int]:
    """Tokenise, keep pairs of 1 to 175 words and a ratio of at most 1.5, lower-case; then every
    23rd pair validates. Five evaluation sets, in the order above, test."""
    train = _sides(raw, "train.tags.de-en.{}")
    tests = [_sides(raw, f"IWSLT14.{test}.de-en.{{}}.xml") for test in TESTS]
    pairs = words(out, train, _talks, _lower)
    kept = hold_out(23, (pair for pair in pairs if fits(pair, longest=175, ratio=1.5)))
    held = chain.from_iterable(words(out, test, segments, _lower) for test in tests)
    return write(out, LANGUAGES, chain(kept, (("test", pair) for pair in held)))


def _sides(raw: Path, name: str) -> list[tuple[Path, str]]:
    return [(find(raw, name.format(language)), language) for language in LANGUAGES]


def _talks(path: Path) -> Iterator[str]:
    """What is said, titles and descriptions; not the other lines about a talk."""
    return (TAGS.sub("", line) for line in stream_lines(path) if not ABOUT.search(line))


def _lower(line: str, language: str) -> str:
    return tokenize(line, language).lower()
