"""The prose of the lessons: words that sound translated, and sentences that are fragments.

A list of our own tics; what is not in it a reader must find.
"""

import re
from statistics import mean

import pytest
from helpers.lessons import TEXTS, prose

NEVER = {
    r"\b(?:nobody|somebody|whoever|whosoever)\b": "you, we, a reader, or the passive",
    r"\b(?:beside|besides)\b": "compared with, against, also",
    r"\b(?:behind|in front of) (?:it|them|the (?:position|word|token))": "after, past, left of",
    r", too[.,;:]": "also, or nothing",
    r"\bas well[.,;:]": "also, or nothing",
    r"\bthe other way (?:a)?round\b": "conversely, in reverse",
    r"\b(?:trainings|foremost|foretold|foretells)\b": "training runs, largest, predicts",
    r"\b(?:is had|are had|is to see|goes without|to its end)\b": "occurs, we can see, omits",
    r"\b(?:in small|in large)\b": "on a small scale",
    r"\b(?:amid|hither|thus far|erstwhile|whereby|thereof)\b": "a plainer word",
    r"\bsuch an? \w+ is\b": "a sentence of its own",
    r"\b(?:a|an) \w+ (?:more|less)\b(?! (?:than|of|or|to|likely|than))": "one extra, one fewer",
}
"""patterns that no lesson contains, each with what to say instead"""
SELDOM = {
    r"\b(?:comes?|came) to\b": 2,
    r"\b(?:stands?|stood)\b": 3,
    r"\blies?\b": 3,
    r"\bof which\b": 2,
    r"\bwhose\b": 3,
    r"\bhence\b": 3,
    r"\bso that\b": 4,
    r"\bnot (?:measured|run)\b": 1,
}
"""how often a lesson may contain a pattern"""
LONGEST = 60
"""words of a sentence"""

each_lesson = pytest.mark.parametrize("text", TEXTS, ids=lambda path: path.stem)


def running_text(source: str) -> str:
    """The paragraphs of a lesson, without tables, directives, code, formulas and references."""
    source = source.partition("\n## References")[0]
    source = re.sub(r"^(`{3,}|:{3,}).*$|^:\w+:.*$|^\|.*$|^#.*$|^\(.*\)=$", "", source, flags=re.M)
    source = re.sub(r"\$\$.*?\$\$|\$[^$]*\$|`[^`]*`|\{\w+\}", "x", source, flags=re.S)
    return re.sub(r"[*_]", "", source)


def sentences(text: str) -> list[str]:
    """The sentences of running text."""
    parts = [part for block in re.split(r"\n\s*\n|^- ", text, flags=re.M) for part in [block]]
    joined = (" ".join(part.split()) for part in parts)
    return [s for part in joined for s in re.split(r"(?<=[.?!])\s+(?=[A-Z\"“(])", part) if s]


@each_lesson
def test_no_tics(text):
    running = running_text(prose(text))
    found = [
        f"{match[0]!r}: say {better}"
        for pattern, better in NEVER.items()
        for match in re.finditer(pattern, running, re.IGNORECASE)
    ]
    for pattern, most in SELDOM.items():
        matches = [match[0] for match in re.finditer(pattern, running, re.IGNORECASE)]
        if len(matches) > most:
            found.append(f"{matches[0]!r} {len(matches)} times, at most {most}")
    assert not found, "\n".join(found)


@each_lesson
def test_sentences_have_the_length_of_speech(text):
    lengths = [len(sentence.split()) for sentence in sentences(running_text(prose(text)))]
    longer = [length for length in lengths if length >= 4]
    assert 12 <= mean(longer) <= 22, f"{mean(longer):.1f} words per sentence"
    assert max(lengths) <= LONGEST, max(lengths)


@pytest.mark.parametrize(
    ("sentence", "clean"),
    [
        ("Nobody measured it.", False),
        ("It has a token more.", False),
        ("It holds there, too.", False),
        ("A layer has one weight more than before.", True),
        ("The kernel slides along the sentence.", True),
    ],
)
def test_the_patterns_find_what_they_are_for(sentence, clean):
    matches = [p for p in NEVER if re.search(p, running_text(sentence), re.IGNORECASE)]
    assert (not matches) == clean
