"""The figures that move show the numbers of the package, by mouse and by keyboard."""

import pytest
import torch
from browser import watch

from dynconv import ops
from dynconv.teach.moving import KernelSoftmax, SlidingWindow, WordKernels

X = torch.tensor([1.0, 3, 2, -1, 0, 2, 4, 1])
KERNEL = torch.tensor([0.2, 0.3, 0.5])
WORDS = ["the", "<type>", "of", 'the "chart"']
KERNELS = torch.tensor([[0.1, 0.2, 0.7], [0.5, 0.25, 0.25], [0.6, 0.3, 0.1], [0.2, 0.2, 0.6]])
FIGURES = [
    SlidingWindow(X, KERNEL, pad_left=2),
    KernelSoftmax(torch.tensor([0.0, 1.0, 0.0]), length=9, pad_left=1),
    WordKernels(WORDS, KERNELS, pad_left=1),
]


@pytest.fixture(params=["light", "dark"])
def page(request, browser, tmp_path):
    """A page with all figures, each twice; it must ask for nothing and log no error."""
    parts = "".join(figure._repr_html_() for figure in FIGURES * 2)
    (tmp_path / "page.html").write_text(f"<meta charset=utf-8>{parts}", encoding="utf-8")
    page = browser.new_page(color_scheme=request.param)
    wrong = watch(page)
    page.goto((tmp_path / "page.html").as_uri())
    yield page
    page.close()
    assert not wrong


def test_the_window_slides_by_keyboard(page):
    figure = page.locator("sliding-window").nth(1)
    said = figure.locator("output")
    y = ops.depthwise_conv(X[None, :, None], KERNEL[None], pad_left=2).flatten()
    for t, value in enumerate(y):
        text = said.text_content()
        assert text.startswith(f"y[{t}] = ") and text.endswith(f" = {value:.2f}")
        figure.locator("input").press("ArrowRight")


def test_temperature_and_dropped_weights(page):
    figure = page.locator("kernel-softmax").first
    texts = figure.locator("svg text")
    kernel = torch.tensor([0.0, 1.0, 0.0]).softmax(0)
    inner = [f"{w:.2f}" for w in kernel] + [f"{kernel[1:].sum():.2f}"] + ["1.00"] * 7
    assert texts.all_text_contents()[:11] == inner
    figure.locator("[name=temperature]").press("Home")  # a tenth: almost one weight alone
    assert texts.all_text_contents()[:3] == ["0.00", "1.00", "0.00"]
    figure.locator("[name=p]").fill("0.5")
    first = texts.all_text_contents()[3:]
    assert set(first) <= {"0.00", "2.00"} and len(set(first)) == 2  # dropped, or doubled
    figure.locator("button").click()
    assert texts.all_text_contents()[3:] != first


def test_a_word_shows_its_kernel(page):
    figure = page.locator("word-kernels").nth(1)
    figure.locator("button").nth(1).press("Enter")
    said = figure.locator("output").text_content()
    assert said == "“<type>” takes 0.50 the, 0.25 <type>, 0.25 of"
    assert figure.locator("button[aria-pressed=true]").text_content() == "<type>"
    figure.locator("button").nth(3).click()
    assert (
        figure.locator("output").text_content() == '“the "chart"” takes 0.20 of, 0.20 the "chart"'
    )


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: type(figure).__name__)
def test_a_figure_is_small_and_the_same_every_time(figure):
    html = figure._repr_html_()
    assert html == figure._repr_html_() and len(html) < 8_000
    assert type(figure).__name__ in repr(figure) and "0x" not in repr(figure)
