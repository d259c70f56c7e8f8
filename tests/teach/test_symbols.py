"""book/symbols.md is the law of notation: every letter of a formula has its meaning there."""

import re
from collections import defaultdict

import pytest
import yaml
from conftest import ROOT
from helpers.lessons import TEXTS, prose

SYMBOLS = (ROOT / "book/symbols.md").read_text(encoding="utf-8")
COMMON, _, OWN = SYMBOLS.partition("## Letters of single lessons")
GREEK = """alpha beta gamma delta epsilon varepsilon zeta eta theta lambda mu nu xi pi rho sigma tau
phi chi psi omega Gamma Delta Theta Lambda Sigma Phi Omega ell""".split()


def formulas(text: str) -> list[str]:
    """The formulas of a page, without code and without paragraphs on the paper's own letters."""
    text = re.sub(r"^(`{3,})\{code-cell\}.*?^\1$", "", text, flags=re.S | re.M)
    text = re.sub(r"^\*From the paper's .*?\n\n", "", text, flags=re.S | re.M)
    displayed = re.findall(r"^```\{math\}\n(?::label:[^\n]*\n)?(.*?)^```", text, flags=re.S | re.M)
    text = re.sub(r"^```\{math\}.*?^```|`[^`\n]*`", "", text, flags=re.S | re.M)
    displayed += re.findall(r"\$\$(.*?)\$\$", text, flags=re.S)
    text = re.sub(r"\$\$.*?\$\$", "", text, flags=re.S)
    return displayed + re.findall(r"(?<![\\$])\$([^$]+?)\$", text)


def letters(formula: str) -> set[str]:
    """The letters of a formula; a calligraphic one and W with a superscript are their own."""
    found = {f"\\mathcal {name}" for name in re.findall(r"\\mathcal\s*\{?([A-Z])", formula)}
    formula = re.sub(r"\\mathcal\s*\{?[A-Z]\}?|(?<=[Wb])\^[A-Z]", " ", formula)
    formula = re.sub(r"\\(?:text|operatorname|mathrm|begin|end|mathtt)\*?\{[^}]*\}", " ", formula)
    found |= {f"\\{name}" for name in re.findall(r"\\([A-Za-z]+)", formula) if name in GREEK}
    return found | {
        letter for word in re.findall(r"\\?[A-Za-z]+", formula) if len(word) < 3 for letter in word
    } - {"\\"}


def parts() -> dict[str, int]:
    """The part of the book of each lesson, by its number."""
    toc = yaml.safe_load((ROOT / "book/_toc.yml").read_text(encoding="utf-8"))
    return {
        chapter["file"].removeprefix("lessons/")[:2]: number
        for number, part in enumerate(toc["parts"])
        for chapter in part["chapters"]
    }


def meanings() -> dict[tuple[str, str], str]:
    """{(letter, lesson): its meaning there}"""
    rows = re.findall(r"^\| (\$.*?) \| ([\d, ]+) \| (.+?) \|$", OWN, flags=re.M)
    return {
        (letter, lesson): meaning
        for names, lessons, meaning in rows
        for name in re.findall(r"\$(.+?)\$", names)
        for letter in letters(name)
        for lesson in lessons.split(", ")
    }


def common() -> set[str]:
    """The letters with one meaning in all lessons: the first column and, for sizes, the second."""
    cells = re.findall(r"^\| ([^|]*\$[^|]*) \| ((?:\$[^|]*)?)", COMMON, flags=re.M)
    return set().union(
        *(letters(name) for row in cells for name in re.findall(r"\$(.+?)\$", " ".join(row)))
    )


@pytest.mark.parametrize("text", TEXTS, ids=lambda path: path.stem)
def test_every_letter_is_on_the_page_of_symbols(text):
    used = set().union(*map(letters, formulas(prose(text))))
    own = {letter for letter, lesson in meanings() if lesson == text.stem[:2]}
    assert used - common() - own == set(), "letters without a meaning on book/symbols.md"
    assert own - used == set(), "letters of book/symbols.md that the lesson does not use"


def test_a_letter_means_one_thing_in_a_part():
    found, part_of = defaultdict(set), parts()
    for (letter, lesson), meaning in meanings().items():
        found[letter, part_of[lesson]].add(meaning)
        assert letter not in common() or "instead" in meaning, letter
    assert {key: value for key, value in found.items() if len(value) > 1} == {}
