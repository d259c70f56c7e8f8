"""Every row that the authors of the three papers report of their own systems has a recipe.

Transcribed from the tables. Left out are rows that a paper quotes from other work, but for the
self-attention systems that it compares with; columns of speed, which `dynconv bench` measures; and
Figure 2 of Gehring et al., which prints no numbers.
"""

import re

import pytest
import torch
from conftest import ROOT
from helpers.published import CONVS2S, ROWS

from dynconv.config import load_recipe, recipe_names
from dynconv.models import build

NOT_SAID = {
    "decoding takes one model, not an ensemble of eight or ten": [
        (CONVS2S + "2", row) for row, _, _ in ROWS[CONVS2S + "2"]
    ],
}
"""rows that a recipe cannot say, by the reason"""


@pytest.fixture(scope="module")
def published() -> dict[tuple[str, str, str, str | None], str]:
    """The recipe of each row: (source, row, value, parameters)."""
    found = {}
    for name in recipe_names():
        for row in load_recipe(name).published:
            key = row.source, row.row, row.value, row.parameters
            assert key not in found, f"{name} and {found.get(key)} both claim {key}"
            found[key] = name
    return found


def test_every_row_of_the_papers_has_a_recipe(published):
    unsaid = {pair for rows in NOT_SAID.values() for pair in rows}
    wanted = {
        (source, *row)
        for source, rows in ROWS.items()
        for row in rows
        if (source, row[0]) not in unsaid
    }
    assert wanted - set(published) == set()


def test_no_recipe_claims_what_no_paper_prints(published):
    printed = {(source, *row) for source, rows in ROWS.items() for row in rows}
    assert {key: published[key] for key in set(published) - printed} == {}


def test_what_a_recipe_cannot_say_is_a_row_that_none_claims(published):
    printed = {(source, row[0]) for source, rows in ROWS.items() for row in rows}
    claimed = {key[:2] for key in published}
    for reason, rows in NOT_SAID.items():
        assert printed >= set(rows), reason
        assert claimed.isdisjoint(rows), f"{reason}: no longer so"


def test_the_appendix_prints_every_row_in_the_order_of_the_papers(published):
    expected, sizes = [], {}
    for source, rows in ROWS.items():
        for row in rows:
            what, value, parameters = row
            name = published.get((source, *row))
            if parameters:
                with torch.device("meta"):  # shapes, no numbers
                    model = build(load_recipe(name).model)
                sizes[name] = sum(p.numel() for p in model.parameters()) / 1e6
            both = f"{parameters} / {sizes[name]:.1f}M" if parameters else "–"
            recipe = f"`{name}`" if name else "–"
            expected.append((what.replace("|", "\\|"), value, both, recipe))
    page = (ROOT / "book/rows.md").read_text(encoding="utf-8")
    cells = re.findall(r"^\| (.+?) \| (.+?) \| .+? \| (.+?) \| (.+?) \|$", page, re.MULTILINE)
    assert [row for row in cells if row[0] != "row"] == expected
