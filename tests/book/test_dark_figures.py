"""Pictures for the dark theme: the same hues, and text that can be read on every colour."""

import importlib.util
import os
import re
from itertools import combinations
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from conftest import ROOT
from PIL import Image

from dynconv.lab.style import COLORS
from dynconv.teach.widgets import KernelSoftmax, MixingRow


@pytest.fixture(scope="module")
def dark():
    """The extension that draws them."""
    path = ROOT / "book/_ext/dark_figures.py"
    spec = importlib.util.spec_from_file_location("dark_figures", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def parse(color: str) -> np.ndarray:
    return np.array([int(color[i : i + 2], 16) for i in (1, 3, 5)]) / 255


def contrast(one: np.ndarray, other: np.ndarray) -> float:
    """As WCAG defines it, 1 to 21."""
    linear = [np.where(c > 0.04045, ((c + 0.055) / 1.055) ** 2.4, c / 12.92) for c in (one, other)]
    low, high = sorted(c @ [0.2126, 0.7152, 0.0722] for c in linear)
    return (high + 0.05) / (low + 0.05)


WHITE, BLACK = np.ones(3), np.zeros(3)


def test_paper_is_the_page_and_text_can_be_read(dark):
    paper, ink = dark.darken(WHITE), dark.darken(BLACK)
    assert np.allclose(paper * 255, 0x12, atol=0.1)  # --pst-color-background of the dark theme
    assert contrast(paper, ink) > 15


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_any_two_colors_can_be_told_apart(dark, theme):
    """By their distance in Oklab, where 0.02 is just visible between neighbouring areas."""
    shown = dark.darken if theme == "dark" else lambda color: color
    seen = {name: np.array(dark.to_oklab(shown(parse(COLORS[name])))) for name in COLORS}
    for one, other in combinations(seen, 2):
        assert np.linalg.norm(seen[one] - seen[other]) > 0.07, (one, other)


@pytest.mark.parametrize("name", COLORS)
def test_a_color_keeps_its_hue_and_stands_out(dark, name):
    """Red stays red: hue within 3 degrees, where there is one, and most of its chroma."""
    color = parse(COLORS[name])
    turned = dark.darken(color)
    paper, ink = dark.darken(WHITE), dark.darken(BLACK)
    (_, *light), (_, *night) = dark.to_oklab(color), dark.to_oklab(turned)
    before, after = complex(*light), complex(*night)
    if abs(before) > 0.02:
        assert abs(np.angle(after / before, deg=True)) < 3
        assert abs(after) > 0.6 * abs(before)
    assert contrast(turned, paper) > 3.5
    # A label in a box or a cell: black or white, whichever the figure has.
    assert max(contrast(turned, paper), contrast(turned, ink)) > 4


STROKES = """() => [...document.querySelectorAll("mixing-row")].map(figure => {
    const canvas = new OffscreenCanvas(1, 1).getContext("2d");
    canvas.fillStyle = getComputedStyle(figure.shadowRoot.querySelector("path")).stroke;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data.slice(0, 3)];
})"""


OPACITIES = """figure => [...figure.shadowRoot.querySelectorAll(".weight")].map(
    cell => getComputedStyle(cell).fillOpacity)"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_moving_figures_and_the_translator_have_the_colors_of_pictures(dark, browser, scheme):
    """A reader who moves from one to the other sees the same orange."""
    expected = {
        name: dark.darken(parse(color)) if scheme == "dark" else parse(color)
        for name, color in COLORS.items()
    }
    page = browser.new_page(color_scheme=scheme)
    look = "<style>:root { color-scheme: light dark; color: light-dark(#222, #ddd) }</style>"
    rows = [MixingRow(["a", "b"], torch.eye(2), color) for color in COLORS.values()]
    page.set_content(look + "".join(row._repr_html_() for row in rows))
    for name, seen in zip(COLORS, page.evaluate(STROKES), strict=True):
        seen = dark.to_oklab(np.array(seen) / 255)
        assert np.linalg.norm(seen - dark.to_oklab(expected[name])) < 0.07, name
    page.close()
    css = (ROOT / "book/_static/translator.css").read_text(encoding="utf-8")
    theme = "html[data-theme=dark] " if scheme == "dark" else ""
    for name, chosen in (("dynamic", ""), ("attention", "[data-mixer=attention]")):
        rule = rf"^{re.escape(f'{theme}.translator{chosen}')} {{ --mixer: (#\w{{6}});"
        (color,) = re.findall(rule, css, re.MULTILINE)
        assert np.abs(parse(color) - expected[name]).max() < 0.01, name


@pytest.mark.parametrize("name", COLORS)
def test_more_weight_is_more_color(dark, name):
    """A matrix's cells go from paper to the colour, and labels on all of them can be read.

    The cell of a weight of 0.05 can be told from paper.
    """
    share = np.linspace(0, 1, 21)[:, None]
    cells = dark.darken(1 - share + share * parse(COLORS[name]))
    paper, ink = dark.darken(WHITE), dark.darken(BLACK)
    steps = [contrast(cell, paper) for cell in cells]
    assert steps[1] > 1.12
    assert all(a < b + 0.1 for a, b in zip(steps, steps[1:], strict=False))
    assert all(max(contrast(c, paper), contrast(c, ink)) > 4 for c in cells)


def test_a_small_weight_is_seen_in_a_moving_figure(dark, browser):
    """On a dark page its cell is lifted as in the pictures; on a light one it is the weight."""
    page = browser.new_page()
    figure = KernelSoftmax(torch.tensor([0.0, 2.89, 0.0]), length=4, pad_left=1)._repr_html_()
    seen = {}
    for color in ("#222", "#ddd"):
        page.set_content(f"<style>:root {{ color: {color} }}</style>{figure}")
        cells = page.locator("kernel-softmax").evaluate(OPACITIES)
        seen[color] = sorted(float(opacity) for opacity in cells if float(opacity))
    page.close()
    assert 0.04 < seen["#222"][0] < 0.06 and seen["#ddd"][0] > 0.15
    assert seen["#222"][-1] > 0.85 and seen["#ddd"][-1] > 0.85


def test_a_figure_is_drawn_once(dark, tmp_path):
    """Every pixel as `darken` says, though a table between whose entries Pillow interpolates."""
    colors = np.array([WHITE, BLACK, *map(parse, COLORS.values())])
    folder = tmp_path / "_images"
    folder.mkdir()
    Image.fromarray((colors[None] * 255).round().astype("uint8")).save(folder / "a.png")
    builder = SimpleNamespace(format="html", images={"_images/a.png": "a.png"})
    app = SimpleNamespace(builder=builder, srcdir=tmp_path, outdir=tmp_path)
    dark.draw_pictures(app, None)
    drawn = folder / "dark/a.png"
    assert np.abs(np.asarray(Image.open(drawn))[0] / 255 - dark.darken(colors)).max() < 0.04
    written = drawn.stat().st_mtime_ns
    dark.draw_pictures(app, None)
    assert drawn.stat().st_mtime_ns == written
    os.utime(drawn, ns=(0, 0))  # older than what draws it
    dark.draw_pictures(app, None)
    assert drawn.stat().st_mtime_ns > 0
    page = {"body": '<p><img alt="A b" src="../_images/a.png" style="width: 9px" /></p>'}
    dark.add_pictures(app, "page", "", page, None)
    assert page["body"].count("<img") == page["body"].count('alt="A b"') == 2
    size = f'width="{len(colors)}" height="1"'  # or the page would grow while it is read
    assert page["body"].count(size) == 2
    lazy = f'class="only-dark" {size} loading="lazy" alt="A b" src="../_images/dark/a.png"'
    assert lazy in page["body"]
