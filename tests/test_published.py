"""Every row that the authors of the three papers report of their own systems has a recipe.

Transcribed from the tables. Left out are rows that a paper quotes from other work, but for the
self-attention systems that it compares with; columns of speed, which `dynconv bench` measures; and
Figure 2 of Gehring et al., which prints no numbers.
"""

import re

import pytest
import torch
from conftest import ROOT

from dynconv.config import load_recipe
from dynconv.config.listing import recipe_names
from dynconv.models import build

WU = "Wu et al. 2019, Table "
TALK = "Lioutas and Guo 2020, Table "
CONVS2S = "Gehring et al. 2017, Table "

ROWS = {
    WU + "1": [
        ("Ott et al. (2018)", "29.3", "210M"),
        ("Ott et al. (2018)", "43.2", None),
        ("LightConv", "28.9", "202M"),
        ("LightConv", "43.1", None),
        ("DynamicConv", "29.7", "213M"),
        ("DynamicConv", "43.2", None),
    ],
    WU + "2": [
        ("Self-attention baseline", "34.4", None),
        ("Self-attention baseline", "23.8", "292M"),
        ("LightConv", "34.8", None),
        ("LightConv", "24.3", "285M"),
        ("DynamicConv", "35.2", None),
        ("DynamicConv", "24.4", "296M"),
    ],
    WU + "3": [
        ("Self-attention baseline (k=inf, H=16)", "26.9 ± 0.1", "210M"),
        ("Self-attention baseline (k=3,7,15,31x3, H=16)", "26.9 ± 0.3", "210M"),
        ("CNN (k=3)", "25.9 ± 0.2", "208M"),
        ("CNN Depthwise (k=3, H=1024)", "26.1 ± 0.2", "195M"),
        ("+ Increasing kernel (k=3,7,15,31x4, H=1024)", "26.4 ± 0.2", "195M"),
        ("+ DropConnect (H=1024)", "26.5 ± 0.2", "195M"),
        ("+ Weight sharing (H=16)", "26.5 ± 0.1", "195M"),
        ("+ Softmax-normalized weights [LightConv] (H=16)", "26.6 ± 0.2", "195M"),
        ("+ Dynamic weights [DynamicConv] (H=16)", "26.9 ± 0.2", "200M"),
        ("Note: DynamicConv(H=16) w/o softmax-normalization", "diverges", "200M"),
        ("AAN decoder + self-attn encoder", "26.8 ± 0.1", "260M"),
        ("AAN decoder + AAN encoder", "22.5 ± 0.1", "310M"),
    ],
    WU + "4": [
        ("Self-attention baseline", "26.67 / 26.73", "331M"),
        ("DynamicConv", "26.60 / 26.67", "339M"),
    ],
    WU + "5": [
        ("Self-attention baseline", "39.26 / 15.98 / 36.35", "90M"),
        ("LightConv", "39.52 / 15.97 / 36.51", "86M"),
        ("DynamicConv", "39.84 / 16.25 / 36.73", "87M"),
    ],
    WU + "6": [
        ("W (No normalization)", "diverges", None),
        ("softmax(W)", "26.9 ± 0.2", None),
        ("sigmoid(W)", "26.6 ± 0.3", None),
        ("tanh(W)", "25.6 ± 0.2", None),
        ("W / (|W|_1 + eps)", "diverges", None),
        ("W / (|W|_2 + eps)", "26.8 ± 0.2", None),
        ("power(W, 2)", "diverges", None),
        ("abs(W)", "diverges", None),
        ("abs(W) / (|W|_1 + eps)", "diverges", None),
        ("abs(W) / (|W|_2 + eps)", "26.7 ± 0.2", None),
    ],
    WU + "7": [
        ("DynamicConv (1-decoder layer (k=31))", "26.1", "124M"),
        ("DynamicConv (3-decoder layers (k=3,7,15))", "27.7", "153M"),
        ("DynamicConv (6-decoder layers (k=3,7,15,31,31,31))", "28.5", "200M"),
    ],
    TALK + "2": [
        ("TaLK Convolution (Ours)", "29.6", "209M"),
        ("TaLK Convolution (Ours)", "43.2", None),
    ],
    TALK + "3": [
        ("Vaswani et al. (2017)", "34.4", "47M"),
        ("Wu et al. (2019)", "35.2", "43M"),  # Wu et al. have no number of parameters
        ("TaLK Convolution (Ours)", "35.5", "42M"),
    ],
    TALK + "4": [
        ("TaLK Convolution (Standard)", "40.03 / 18.45 / 36.13", "59M"),
        ("TaLK Convolution (Deep)", "40.59 / 18.97 / 36.81", "83M"),
    ],
    TALK + "5": [
        ("Baevski & Auli (2019)", "20.5", "247M"),
        ("Dynamic Convolutions", "25.0", "255M"),
        ("TaLK Convolution (Ours)", "23.3", "240M"),
    ],
    TALK + "7": [
        ("TaLK Convolution (a_l, a_r=1x7, H=1)", "diverges", "42M"),
        ("+ Output Normalization", "35.70 ± 0.1", "42M"),
        ("+ Increasing Max Offsets (a_l, a_r=1,3,7,15x4)", "36.23 ± 0.1", "42M"),
        ("+ Offsets Dropout (p=0.1)", "36.37 ± 0.05", "42M"),
        ("+ Fully-headed Kernels (H=512)", "36.51 ± 0.07", "47M"),
        ("+ Multi-headed Kernels (H=4)", "36.65 ± 0.05", "42M"),
        ("Replacing Swish with ReLU", "36.21 ± 0.05", "42M"),
    ],
    CONVS2S + "1": [
        ("ConvS2S (Word 80K), English-Romanian", "29.45", None),
        ("ConvS2S (BPE 40K), English-Romanian", "30.02", None),
        ("ConvS2S (BPE 40K), English-German", "25.16", None),
        ("ConvS2S (BPE 40K), English-French", "40.51", None),
    ],
    CONVS2S + "2": [
        ("ConvS2S, English-German", "26.43", None),
        ("ConvS2S, English-French", "41.44", None),
        ("ConvS2S (10 models), English-French", "41.62", None),
    ],
    CONVS2S + "3": [
        ("ConvS2S, b=1", "33.45", None),
        ("ConvS2S, b=5", "34.10", None),
    ],
    CONVS2S + "4": [
        ("ConvS2S", "6.64 / 21.7", None),
        ("- source position", "6.69 / 21.3", None),
        ("- target position", "6.63 / 21.5", None),
        ("- source & target position", "6.68 / 21.2", None),
    ],
    CONVS2S + "5": [
        ("1,2,3,4,5", "6.65 / 21.63", None),
        ("1,2,3,4", "6.70 / 21.54", None),
        ("1,2,3", "6.95 / 21.36", None),
        ("1,2", "6.92 / 21.47", None),
        ("1,3,5", "6.97 / 21.10", None),
        ("1", "7.15 / 21.26", None),
        ("2", "7.09 / 21.30", None),
        ("3", "7.11 / 21.19", None),
        ("4", "7.19 / 21.31", None),
        ("5", "7.66 / 20.24", None),
    ],
    CONVS2S + "6": [
        ("ConvS2S, DUC-2004", "30.44 / 10.84 / 26.90", None),
        ("ConvS2S, Gigaword", "35.88 / 17.48 / 33.29", None),
    ],
    CONVS2S + "7": [
        ("k=3, 5 encoder layers", "20.61", None),
        ("k=3, 9 encoder layers", "21.17", None),
        ("k=3, 13 encoder layers", "21.63", None),
        ("k=5, 5 encoder layers", "20.80", None),
        ("k=5, 9 encoder layers", "21.02", None),
        ("k=5, 13 encoder layers", "21.42", None),
        ("k=7, 5 encoder layers", "20.81", None),
        ("k=7, 9 encoder layers", "21.30", None),
        ("k=7, 13 encoder layers", "21.09", None),
    ],
    CONVS2S + "8": [
        ("k=3, 3 decoder layers", "21.10", None),
        ("k=3, 5 decoder layers", "21.71", None),
        ("k=3, 7 decoder layers", "21.62", None),
        ("k=5, 3 decoder layers", "21.09", None),
        ("k=5, 5 decoder layers", "21.63", None),
        ("k=5, 7 decoder layers", "21.24", None),
        ("k=7, 3 decoder layers", "21.40", None),
        ("k=7, 5 decoder layers", "21.31", None),
        ("k=7, 7 decoder layers", "21.33", None),
    ],
}

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
