"""IWSLT'14 De-En: lower-cased TED talks, as fairseq's prepare-iwslt14.sh builds them."""

import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from dynconv.text.builders.moses import tokenize
from dynconv.text.builders.steps import (
    fits,
    hold_out,
    read_segments,
    require_sides,
    tokenized_pairs,
    write_splits,
)
from dynconv.text.lines import stream_lines

LANGUAGES = ("de", "en")
TESTS = ("TED.dev2010", "TEDX.dev2012", "TED.tst2010", "TED.tst2011", "TED.tst2012")
"""the evaluation sets that together are the test split"""
METADATA = re.compile(r"<(url|talkid|keywords|speaker|reviewer|translator)\b")
"""the beginning of a metadata line"""
TAGS = re.compile(r"</?(title|description)>")
"""tags to strip from the lines of a talk"""


def iwslt14_de_en(raw: Path, out: Path) -> dict[str, int]:
    """Build IWSLT'14: tokenised pairs of 1 to 175 words and a ratio of at most 1.5, in lower case.

    Every 23rd pair goes to split valid. The five sets of `TESTS`, in this order, are the test.
    """
    train = require_sides(raw, "train.tags.de-en.{}", LANGUAGES)
    tests = [require_sides(raw, f"IWSLT14.{test}.de-en.{{}}.xml", LANGUAGES) for test in TESTS]
    pairs = tokenized_pairs(out, train, read_talks, lower_words)
    kept = hold_out(23, (pair for pair in pairs if fits(pair, longest=175, ratio=1.5)))
    held = chain.from_iterable(
        tokenized_pairs(out, test, read_segments, lower_words) for test in tests
    )
    return write_splits(out, LANGUAGES, chain(kept, (("test", pair) for pair in held)))


def read_talks(path: Path) -> Iterator[str]:
    """Read speech, titles and descriptions, but not the other lines about a talk."""
    return (TAGS.sub("", line) for line in stream_lines(path) if not METADATA.search(line))


def lower_words(line: str, language: str) -> str:
    return tokenize(line, language).lower()
