"""The figures that move show the numbers of the package, by mouse and by keyboard."""

import json
import re
from functools import partial

import numpy as np
import pytest
import torch
from helpers.browser import watch

from dynconv import ops
from dynconv.lab.simulate.trace import ACCESS
from dynconv.lab.style import COLORS
from dynconv.teach import mixing_matrix
from dynconv.teach.widgets import (
    BeamGrowth,
    BlockTrace,
    KernelSoftmax,
    MixingRow,
    PairMerges,
    PrefixScan,
    SlidingWindow,
    TalkWindow,
    WordKernels,
)
from dynconv.text import Vocabulary

X = torch.tensor([1.0, 3, 2, -1, 0, 2, 4, 1])
KERNEL = torch.tensor([0.2, 0.3, 0.5])
WORDS = ["the", "<type>", "of", 'the "chart"']
KERNELS = torch.tensor([[0.1, 0.2, 0.7], [0.5, 0.25, 0.25], [0.6, 0.3, 0.1], [0.2, 0.2, 0.6]])
MATRIX = torch.tensor(
    [[0.5, 0.25, 0.25, 0], [0, 1, 0, 0], [-0.5, 0, 0.125, 0.75], [0, 0, 0, 0]],
)


def block() -> np.ndarray:
    """Three threads take x[0 ... 4] into a tile of which element 0 is padding; then two taps."""
    steps = [  # phase, site, array, write, and the elements of threads 0, 1 and 2
        (0, 0, 0, False, [None, 0, 1]),
        (0, 1, -1, True, [0, 1, 2]),
        (0, 0, 0, False, [2]),
        (0, 1, -1, True, [3]),
        (1, 2, -1, False, [0, 1, 2]),
        (1, 2, -1, False, [1, 2, 3]),
        (1, 3, 2, True, [0, 1, 2]),
        (1, 4, 1, False, [0, 0, 0]),  # of an array that is not drawn
    ]
    accesses = [
        (7, thread, array, at, 4 * at, 4, write, site, 0, step, phase)
        for step, (phase, site, array, write, elements) in enumerate(steps)
        for thread, at in enumerate(elements)
        if at is not None
    ]
    return np.array(sorted(accesses, key=lambda a: (a[-1], a[1])), ACCESS)  # as a trace has them


ROWS = [("x<b>", 0, 5), ("tile", -1, 4), ("y", 2, 5)]
OFFSETS = torch.tensor([[0.0, 0.25, 0.5, 0.45], [0.5, 0.25, 1.0, 0.75]])  # left, right
RECORD = [  # a beam of two, in the order in which a search has ranked its candidates
    (("<b>",), -0.5, "live", None),
    (("two",), -1.0, "live", None),
    (("<eos>",), -2.5, "pruned", None),
    (("two", "<eos>"), -1.25, "finished", -0.625),
    (("<b>", "past"), -1.5, "live", None),
    (("two", "thirty"), -2.0, "live", None),
    (("<b>", "past", "<eos>"), -1.5, "finished", -0.5),
    (("two", "thirty", "<eos>"), -2.75, "pruned", None),
]
FIGURES = [
    SlidingWindow(X, KERNEL, pad_left=2),
    KernelSoftmax(torch.tensor([0.0, 1.0, 0.0]), length=9, pad_left=1),
    WordKernels(WORDS, KERNELS, pad_left=1),
    PairMerges([(97, 98), (256, 256), (32, 97)], list(range(256)), 256, text='abab "ab"'),
    MixingRow(WORDS, MATRIX, COLORS["depthwise"]),
    PrefixScan(X),
    BlockTrace(block(), ROWS, halo=(1, 0)),
    TalkWindow(WORDS, X[2:6], *OFFSETS, max_left=2, max_right=3),
    BeamGrowth(RECORD),
]

VISIBLE = [*range(33, 127), *range(161, 173), *range(174, 256)]
HIDDEN = [b for b in range(256) if b not in VISIBLE]
BYTES = {chr(b): b for b in VISIBLE} | {chr(256 + i): b for i, b in enumerate(HIDDEN)}
"""the characters that a saved vocabulary shows the bytes as"""


@pytest.fixture(scope="module")
def loaded(browser, tmp_path_factory):
    """A page with all figures, each twice, and what goes wrong on it."""
    parts = "".join(figure._repr_html_() for figure in FIGURES * 2)
    path = tmp_path_factory.mktemp("widgets") / "page.html"
    path.write_text(f"<meta charset=utf-8>{parts}", encoding="utf-8")
    page = browser.new_page()
    yield page, path.as_uri(), watch(page)
    page.close()


@pytest.fixture
def page(loaded):
    """That page, as it begins; a test must ask for nothing and log no error."""
    page, address, wrong = loaded
    wrong.clear()
    page.goto(address)
    yield page
    assert not wrong


def second(page, tag):
    """The second figure of a kind, the line under it, and its first input."""
    figure = page.locator(tag).nth(1)
    return figure, figure.locator("output"), figure.locator("input").first


def test_the_window_slides_by_keyboard(page):
    figure, line, slider = second(page, "sliding-window")
    assert figure.locator("svg text").all_text_contents()[:3] == ["input", "kernel", "output"]
    y = ops.depthwise_conv(X[None, :, None], KERNEL[None], pad_left=2).flatten()
    for t, value in enumerate(y):
        assert re.fullmatch(rf"y\[{t}\] = .* = {value:.2f}", line.text_content())
        slider.press("ArrowRight")


@pytest.mark.parametrize(
    "tag, values",
    [
        ("sliding-window", ["1"]),
        ("kernel-softmax", ["1.12", "0.1"]),
        ("pair-merges", ["3"]),
        ("mixing-row", ['3, the "chart"']),
        ("prefix-scan", ["1 of 3"]),
        ("block-trace", ["2 of 7"]),
        ("talk-window", ['the "chart"', "0.46", "0.76"]),
        ("beam-growth", ["3"]),
    ],
)
def test_a_slider_shows_its_value(page, tag, values):
    figure = page.locator(tag).nth(1)
    for slider in figure.locator("[type=range]").all():
        slider.press("ArrowRight")
    assert figure.locator("[type=range] + b").all_text_contents() == values


def test_temperature_and_dropped_weights(page):
    figure = page.locator("kernel-softmax").first
    texts = figure.locator("svg text")
    kernel = torch.tensor([0.0, 1.0, 0.0]).softmax(0)
    inner = [f"{w:.2f}" for w in kernel] + [f"{kernel[1:].sum():.2f}"] + ["1.00"] * 7
    assert texts.all_text_contents()[:11] == inner
    figure.locator("[name=temperature]").press("Home")  # a tenth: almost one weight alone
    assert texts.all_text_contents()[:3] == ["0.00", "1.00", "0.00"]
    figure.locator("[name=p]").fill("0.5")
    dropped, masks = {"0.00", "2.00"}, set()  # what is not dropped is doubled
    for _ in range(9):  # one draw for the weight: all rows keep it, or none does
        figure.locator("button").click()
        (sums,) = {*texts.all_text_contents()[3:]}
        masks.add(sums)
    assert masks == dropped
    for name in ("fresh", "input (dropout)"):
        figure.get_by_label(name).check()
        assert {*texts.all_text_contents()[3:]} == dropped
        assert f"draws: {name};" in figure.locator("output").text_content()


def test_what_shares_a_draw(page):
    """A uniform kernel of three at p = 0.5: which squares of the matrix vanish together."""
    figure = page.locator("kernel-softmax").first
    figure.locator("[name=temperature]").press("End")
    figure.locator("[name=p]").fill("0.5")
    cells = figure.locator("svg .cell")

    def alike(part):
        return part.unique().numel() == 1

    for name in ("shared", "input (dropout)", "fresh"):
        figure.get_by_label(name).check()
        for _ in range(5):
            figure.locator("button").click()
            kept = "all => all.map(cell => getComputedStyle(cell).fillOpacity > 0)"
            M = torch.tensor(cells.evaluate_all(kept)).view(9, 9)
            assert not M.triu(2).any() and not M.tril(-2).any()
            shared = {
                "shared": all(alike(M.diagonal(k)) for k in (-1, 0, 1)),
                "input (dropout)": all(alike(M[max(s - 1, 0) : s + 2, s]) for s in range(9)),
            }
            assert shared.get(name, True)
    assert not any(shared.values())  # of the last draw, one for each entry


def test_a_word_shows_its_kernel(page):
    figure, line, _ = second(page, "word-kernels")
    figure.locator("button").nth(3).click()
    assert line.text_content() == '“the "chart"” takes 0.20 of, 0.20 the "chart"'
    figure.locator("button").nth(1).press("Enter")
    assert line.text_content() == "“<type>” takes 0.50 the, 0.25 <type>, 0.25 of"
    assert figure.locator("button[aria-pressed=true]").text_content() == "<type>"


def test_typed_text_falls_into_the_tokens_of_the_package(page):
    lines = ["der Drucker öffnet, don't wait 🙂 12", "aaaaa", "two  spaces"]
    vocabulary = Vocabulary.learn([*lines * 3, "aa aa der die"], 300)
    figure = PairMerges(*merges_of(vocabulary), text=lines[0])
    page.set_content(figure._repr_html_())
    for line in lines:
        page.locator("[name=text]").fill(line)
        boxes = page.locator("svg text").all_text_contents()
        types = vocabulary.pieces(vocabulary.encode([line])[0])
        assert [spelled(t) for t in types] == boxes
    page.locator("[name=done]").press("Home")
    assert len(page.locator("svg text").all_text_contents()) == len(" two  spaces")
    assert "after 0 of 42 merges: 12 tokens" in page.locator("output").text_content()


def merges_of(vocabulary):
    """The table, the ids of the bytes and the id of merge 0."""
    model = json.loads(vocabulary._tokenizer.to_str())["model"]
    pairs = [tuple(model["vocab"][part] for part in pair) for pair in model["merges"]]
    letters = {byte: letter for letter, byte in BYTES.items()}
    return pairs, [model["vocab"][letters[b]] for b in range(256)], 258


def spelled(type_: str) -> str:
    spelling = bytes(BYTES[letter] for letter in type_)
    try:
        return spelling.decode().replace(" ", "␣")
    except UnicodeDecodeError:
        return spelling.hex(" ")


def test_a_row_of_the_mixing_matrix(page):
    figure, line, slider = second(page, "mixing-row")
    row = 'output 2, “of” = − 0.50 the + 0.13 of + 0.75 the "chart"; the weights sum to 0.38'
    assert line.text_content() == row
    ribbons = figure.locator("path")
    assert ribbons.count() == 3 and figure.locator("path[stroke-dasharray]").count() == 1
    widths = [float(w.get_attribute("stroke-width")) for w in ribbons.all()]
    assert widths == [1 + 12 * 0.5, 1 + 12 * 0.125, 1 + 12 * 0.75]  # the largest entry is 1
    slider.press("ArrowRight")
    assert line.text_content() == 'output 3, “the "chart"” = 0; the weights sum to 0.00'
    places = figure.locator("[data-t='1'] rect")  # an input, an output and a row of the matrix
    assert places.count() == 3
    for place in places.all():
        slider.press("Home")
        assert slider.get_attribute("aria-valuetext") == "0, the"
        place.click()
        assert line.text_content() == "output 1, “<type>” = 1.00 <type>; the weights sum to 1.00"
        assert slider.input_value() == "1"
        assert slider.get_attribute("aria-valuetext") == "1, <type>"


BELOW = ["kernel-softmax", "mixing-row", "word-kernels"]
"""figures whose matrix is beside the rest on a desk"""


@pytest.mark.parametrize("tag", [*BELOW, "sliding-window", "pair-merges", "block-trace"])
def test_on_a_phone_the_drawing_fits(page, tag):
    """It is narrower, or taller because the matrix is below."""
    shape = "e => [e.viewBox.baseVal.width, e.viewBox.baseVal.height]"
    inside = """e => [...e.querySelectorAll("*")].every(shape => {
        const box = shape.getBBox(), {width, height} = e.viewBox.baseVal;
        return shape.closest("[transform]") || (box.x >= 0 && box.y >= 0
            && box.x + box.width <= width && box.y + box.height <= height); })"""
    drawing, desk = page.locator(f"{tag} svg").first, page.viewport_size
    width, height = drawing.evaluate(shape)
    page.set_viewport_size({"width": 390, "height": 900})
    page.reload()
    narrow, tall = drawing.evaluate(shape)
    fits = drawing.evaluate(inside)
    page.set_viewport_size(desk)
    assert narrow <= 375 and narrow < width and fits
    assert tag not in BELOW or tall > 1.5 * height


def test_a_folded_figure_is_drawn_anew_when_it_opens(page):
    """While it is folded it has no width, and might take the page for a phone or for a desk."""
    page.set_content(f"<details><summary>show</summary>{FIGURES[2]._repr_html_()}</details>")
    drawing, desk = page.locator("svg"), page.viewport_size
    for width in (390, 1280):
        page.set_viewport_size({"width": width, "height": 900})
        page.locator("summary").click()
        page.wait_for_timeout(50)
        assert drawing.evaluate("e => e.viewBox.baseVal.width") == (340 if width == 390 else 640)
        page.locator("summary").click()
    page.set_viewport_size(desk)


SCANS = {  # additions and depth after each step, for 8 cells
    "one after another": ([0, 1, 2, 3, 4, 5, 6, 7], [0, 1, 2, 3, 4, 5, 6, 7]),
    "log-step": ([0, 7, 13, 17], [0, 1, 2, 3]),
    "work-efficient": ([0, 4, 6, 7, 7, 8, 10, 14], [0, 1, 2, 3, 3, 4, 5, 6]),
}


@pytest.mark.parametrize("name", SCANS)
def test_a_scan_ends_in_the_cumulative_sum(page, name):
    figure = page.locator("prefix-scan").nth(1)
    figure.get_by_label(name, exact=True).check()
    line, slider = figure.locator("output"), figure.locator("[name=step]")
    last = len(SCANS[name][0]) - 1
    for step, (additions, depth) in enumerate(zip(*SCANS[name], strict=True)):
        counts = f"{name}, step {step} of {last}: {additions} additions, depth {depth}"
        assert line.text_content().startswith(counts)
        assert figure.locator("svg .add").count() == additions
        assert slider.get_attribute("aria-valuetext") == counts
        slider.press("ArrowRight")
    rows = [float(number) for number in figure.locator("svg text").all_text_contents()[8:]]
    sums = [0, *X.cumsum(dim=0).tolist()]
    ends = sums if name == "work-efficient" else sums[1:]
    assert rows[:8] == X.tolist() and rows[-len(ends) :] == ends
    assert line.text_content().endswith(f"the last row is S[{9 - len(ends)}] to S[8]")


def test_what_a_scan_adds_in_its_second_step(page):
    figure = page.locator("prefix-scan").first
    figure.get_by_label("log-step").check()
    figure.locator("[name=step]").fill("2")
    rows = [float(number) for number in figure.locator("svg text").all_text_contents()[8:]]
    assert rows[8:16] == [(X[max(t - 1, 0) : t + 1]).sum() for t in range(8)]  # windows of two
    assert rows[16:] == [(X[max(t - 3, 0) : t + 1]).sum() for t in range(8)]  # and of four
    figure.get_by_label("work-efficient").check()  # begins anew
    assert "step 0 of 7" in figure.locator("output").text_content()
    figure.locator("[name=step]").fill("2")
    rows = [float(number) for number in figure.locator("svg text").all_text_contents()[8:]]
    assert rows[19] == X[:4].sum() and rows[23] == X[4:].sum()
    assert rows[16:19] == [X[0], X[:2].sum(), X[2]]


def test_a_scan_wants_a_power_of_two():
    with pytest.raises(ValueError, match="a scan of 6 cells: .* a power of two"):
        PrefixScan(X[:6])


def test_a_block_steps_through_its_tile(page):
    figure, line, slider = second(page, "block-trace")
    lit = figure.locator("svg text[style]")
    steps = [
        ("0 barriers: 2 threads read x<b>, 8 bytes", (8, 0, 0, 0), ["1", "2"]),
        ("0 barriers: 3 threads write tile, 12 bytes", (8, 0, 0, 12), ["0", "1", "2"]),
        ("0 barriers: 1 thread reads x<b>, 4 bytes", (12, 0, 0, 12), ["0"]),
        ("0 barriers: 1 thread writes tile, 4 bytes", (12, 0, 0, 16), ["0"]),
        ("1 barrier: 3 threads read tile, 12 bytes", (12, 0, 12, 16), ["0", "1", "2"]),
        ("1 barrier: 3 threads read tile, 12 bytes", (12, 0, 24, 16), ["0", "1", "2"]),
        ("1 barrier: 3 threads write y, 12 bytes", (12, 12, 24, 16), ["0", "1", "2"]),
    ]
    for i, (what, moved, threads) in enumerate(steps, 1):
        counted = "global {} bytes loaded, {} stored, shared {} loaded, {} stored".format(*moved)
        assert line.text_content() == f"step {i} of 7, after {what}; so far {counted}"
        assert lit.all_text_contents() == threads
        assert slider.get_attribute("aria-valuetext") == f"{i} of 7"
        slider.press("ArrowRight")
    touched = figure.locator("svg rect.bar, svg rect.role").count()
    assert touched == 3 + 4 + 3 + 7  # three of x, the tile, three of y, all steps
    assert figure.locator("svg rect[stroke-dasharray]").count() == 1  # the halo
    for word in ("halo", "barrier", "x<b>"):
        assert figure.get_by_text(word, exact=True).count() == 1
    slider.press("Home")
    assert line.text_content().startswith("step 1 of 7")


def test_a_block_plays_and_pauses(page):
    page.clock.install()
    page.reload()
    figure = page.locator("block-trace").first
    line, play = figure.locator("output"), figure.locator("button")
    play.press("Enter")
    for i in range(1, 4):
        assert line.text_content().startswith(f"step {i} of 7")
        page.clock.run_for(900)
    play.click()
    page.clock.run_for(5000)
    assert line.text_content().startswith("step 4 of 7")
    assert play.get_attribute("aria-pressed") == "false"
    play.click()
    page.clock.run_for(5000)
    assert line.text_content().startswith("step 7 of 7")
    assert play.get_attribute("aria-pressed") == "false"
    play.click()  # once more, from the first
    assert line.text_content().startswith("step 1 of 7")
    page.clock.run_for(900)
    figure.locator("input").press("ArrowRight")  # by hand: it stops
    page.clock.run_for(5000)
    assert line.text_content().startswith("step 3 of 7")


def test_cells_of_vectors_and_of_several_threads(page):
    wide = np.zeros(3, ACCESS)
    wide["thread"], wide["bytes"] = range(3), 8
    wide["index"], wide["offset"] = [0, 2, 2], [0, 8, 8]
    page.set_content(BlockTrace(wide, [("x", 0, 6)])._repr_html_())
    lit = page.locator("svg text[style]").all_text_contents()
    assert lit == ["0", "0", "2×", "2×"]


def test_a_trace_of_two_blocks_is_refused():
    two = np.concatenate([block(), block()])
    two["block"][:5] = 3
    with pytest.raises(ValueError, match=r"of blocks \[3, 7\]: pass the accesses of one block"):
        BlockTrace(two, ROWS)


def shown(figure):
    """The shares in the cells, and the line under the figure."""
    texts = figure.locator("svg text").all_text_contents()
    return [float(share) for share in texts[1:12:3]], figure.locator("output").text_content()


def expected(left, right, t, max_left=2, max_right=3):
    """The same by the package: shares, and the end of the line with the output of word t."""
    offsets = [z if z is None else torch.tensor(z).view(1, 4, 1) for z in (left, right)]
    talk = partial(ops.talk_conv, left=offsets[0], right=offsets[1])
    row = mixing_matrix(partial(talk, max_left=max_left, max_right=max_right), 4)[t]  # (T)
    out, K = row @ X[2:6], max_left + max_right + 1
    shares = [round(share, 2) for share in (row * K).tolist()]
    return shares, f" = {out * K:.2f}; divided by {K}: {out:.2f}".replace("-0.00", "0.00")


def test_the_window_of_a_word_and_its_sum(page):
    figure = page.locator("talk-window").nth(1)
    word, left, right = (figure.locator(f"[name={name}]") for name in ("t", "left", "right"))
    offsets = OFFSETS.tolist()
    for t in (2, 0, 1, 3):  # it begins with word 2
        word.fill(str(t))
        assert word.get_attribute("aria-valuetext") == WORDS[t]
        for a, b in [(None, None), (0, 0), (1, 1), (0.35, 0.5), (0.9, 0.15)]:
            if a is not None:
                left.fill(str(a))
                right.fill(str(b))
                offsets[0][t], offsets[1][t] = a, b
            shares, end = expected(*offsets, t)
            cells, line = shown(figure)
            assert cells == shares and line.endswith(end)
    left.press("ArrowLeft")
    assert left.input_value() == "0.89"
    figure.locator("[data-t='0']").click()
    word.press("ArrowRight")  # what one has set stays with its word
    assert (left.input_value(), right.input_value()) == ("0.9", "0.15")
    start = page.locator("talk-window").first.locator("output").text_content()
    assert start.endswith(expected(*OFFSETS.tolist(), 2)[1])
    assert start == (
        "“of”, places 1.00 to 4.00: 1.00 × -1 + 1.00 × 0 + 1.00 × 2"
        " = S(4.00) − S(1.00) = 3.00 − 2.00 = 1.00; divided by 6: 0.17"
    )


def test_an_edge_is_dragged(page):
    figure = page.locator("talk-window").first
    figure.scroll_into_view_if_needed()
    box = figure.locator("svg").bounding_box()
    unit = box["width"] / (80 + 50 * 4)

    def at(p):
        return box["x"] + unit * (60 + 50 * p), box["y"] + unit * 60

    page.mouse.move(*at(1.2))  # the nearest edge is the left one, at 1
    page.mouse.down()
    page.mouse.move(*at(0.5))
    page.mouse.up()
    page.mouse.move(*at(2.0))  # nothing is held any more
    assert float(figure.locator("[name=left]").input_value()) == pytest.approx(0.75, abs=0.011)
    page.mouse.move(*at(3.8))
    page.mouse.down()
    page.mouse.move(*at(-1.0))  # not beyond the word itself
    assert figure.locator("[name=right]").input_value() == "0"
    page.mouse.move(*at(3.6))
    page.mouse.up()
    assert float(figure.locator("[name=right]").input_value()) == pytest.approx(0.2, abs=0.011)


def test_a_causal_window_has_one_edge(page):
    figure = TalkWindow(WORDS, X[2:6], OFFSETS[0], None, max_left=4, max_right=0)
    page.set_content(figure._repr_html_())
    assert page.locator("[name=right]").count() == 0
    page.locator("[name=t]").press("End")
    shares, end = expected(OFFSETS[0].tolist(), None, 3, 4, 0)
    cells, line = shown(page)
    assert cells == shares and line.endswith(end)


def test_a_beam_grows_by_keyboard(page):
    figure, line, slider = second(page, "beam-growth")
    assert line.text_content().startswith("step 3: nothing"), "it opens on its last step"
    best = "finished 2, the best “<b> past” with score -0.50"
    assert line.text_content() == f"step 3: nothing goes on; {best}"
    faint = figure.locator("g[data-kept=false] text:first-child")
    numbers = figure.locator("g text:last-child")
    assert sorted(faint.all_text_contents()) == ["<eos>", "<eos>", "thirty"]
    scores = [s for s in numbers.all_text_contents() if s.startswith("s ")]
    assert sorted(scores) == ["s -0.50", "s -0.63"]
    slider.press("ArrowLeft")
    assert faint.all_text_contents() == ["<eos>"]
    best = "finished 1, the best “two” with score -0.63"
    live = "goes on with “<b> past” -1.50, “two thirty” -2.00"
    assert line.text_content() == f"step 2: {live}; {best}"
    slider.press("Home")
    assert line.text_content() == "step 0: goes on with “” 0.00; nothing has finished"
    slider.press("ArrowRight")
    assert "“<b>” -0.50, “two” -1.00; nothing" in line.text_content()
    assert numbers.all_text_contents() == ["0.00", "-0.50", "-1.00", "-2.50"]


def test_figures_are_drawn_in_both_schemes_and_fit_on_a_phone(browser, tmp_path):
    """Their colours on a dark page: tests/book/test_dark_figures.py."""
    figures = "".join(figure._repr_html_() for figure in FIGURES)
    look = "<style>:root { color-scheme: light dark; color: light-dark(#222, #ddd) }</style>"
    (tmp_path / "page.html").write_text(f"<meta charset=utf-8>{look}{figures}", "utf-8")
    for scheme in ("light", "dark"):
        page = browser.new_page(color_scheme=scheme, viewport={"width": 390, "height": 800})
        wrong = watch(page)
        page.goto((tmp_path / "page.html").as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") == 390
        assert page.locator("svg > *").count() > 100 and not wrong
        page.close()


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: type(figure).__name__)
def test_a_figure_is_small_and_the_same_every_time(figure):
    html = figure._repr_html_()
    assert html == figure._repr_html_() and len(html) < 9_500
    assert type(figure).__name__ in repr(figure) and "0x" not in repr(figure)
