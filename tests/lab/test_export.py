"""`dynconv export`: from the same weights, the page's JavaScript writes PyTorch's tokens."""

import base64
import gzip
import itertools
import json
import re
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import ROOT, sized_stack
from helpers.browser import watch

from dynconv import cli
from dynconv.config import DecodeConfig, load_recipe
from dynconv.decode import greedy
from dynconv.lab import export, ledger
from dynconv.lab.export import REGISTER, dequantize, greedy_bleu, pack_vocabulary, quantize
from dynconv.models import build
from dynconv.tasks import translation
from dynconv.text import EOS, encode_corpus, load_parallel, pad_sequences
from dynconv.train import load_model, train

STATIC = ROOT / "book/_static"
MIXERS = ("dynamic", "attention")
PHONE, DESK = ({"width": width, "height": 900} for width in (390, 1280))
READY = ".translator:not([aria-busy])"
ODD = [
    "  zwei  und\tzwanzig ",
    "Größe: 3½ – „Straße“ 東京 🙂",
    "... ===== -----",
    "cafe\u0301\u00a0'll don't\u3000<eos> \x85 x",
    "   ",
    "",
]


def read_web(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the object in a file that `export_web` wrote, and its tensors."""
    registered = path.read_text(encoding="utf-8").partition(REGISTER)[2]
    model = json.loads(registered.partition(" = ")[2].removesuffix(";\n"))
    data, tensors = gzip.decompress(base64.b64decode("".join(model["data"]))), {}
    for name, dtype, *shape in model["tensors"]:
        kind = np.dtype(dtype).newbyteorder("<")
        count = int(np.prod(shape))
        tensors[name] = np.frombuffer(data, kind, count).astype(dtype).reshape(shape)
        data = data[count * kind.itemsize :]
    return model, tensors


@pytest.fixture
def tiny(recipe, tmp_path):
    """A function that trains a small model for ten updates and returns its run."""

    def run(mixer="dynamic", **model):
        stacks = {side: sized_stack(2, mixer, 3) for side in ("encoder", "decoder")}
        if mixer == "attention":
            stacks = {side: replace(stack, window=None) for side, stack in stacks.items()}
        train(replace(recipe, model=replace(recipe.model, **(stacks | model))), tmp_path / "run")
        return tmp_path / "run"

    return run


def in_browser(browser, path, lines: list[str]) -> list[dict]:
    """By the page's JavaScript: each line's ids, those of its translation, and the last logits."""
    page = browser.new_page()
    wrong = watch(page)
    for script in (STATIC / "translator.js", path):
        page.add_script_tag(path=script)
    found = page.evaluate(
        """async lines => {
            const translator = await Translator.load(Object.values(dynconvModels)[0]);
            return lines.map(line => {
                const state = translator.start(line);
                while (translator.next(state));
                const source = state.source.slice(0, -1), target = state.target.slice(0, -1);
                const text = translator.vocabulary.decode(target);
                return {source, target, text, logits: Array.from(state.logits ?? [])};
            });
        }""",
        lines,
    )
    page.close()
    assert not wrong
    return found


def same_in_pytorch(found: list[dict], model, vocabulary, lines: list[str]) -> None:
    """Compare with what PyTorch writes with the same weights, token by token."""
    sources = vocabulary.encode(lines)
    assert [each["source"] for each in found] == sources
    full = [(each, ids) for each, ids in zip(found, sources, strict=True) if ids]
    source, pad_mask = pad_sequences([ids for _, ids in full], eos_after=True)
    targets = greedy(model, source, pad_mask)
    for row, ((each, ids), target) in enumerate(zip(full, targets, strict=True)):
        assert each["target"] == target
        assert each["text"] == vocabulary.decode(target)
        prefix, length = torch.tensor([[EOS, *target]]), len(ids) + 1
        logits = model(source[row : row + 1, :length], prefix)[0, -1]
        assert torch.allclose(torch.tensor(each["logits"]), logits, atol=1e-3)
    assert all(each["text"] == "" for each in found if not each["source"])


def rounded(model, tensors):
    """A model with exported weights."""
    missing, unexpected = model.load_state_dict(dequantize(tensors), strict=False)
    assert set(missing) == {"source_embedding.weight", "output.weight"} and not unexpected
    return model.eval()


@pytest.mark.parametrize("mixer", MIXERS)
def test_a_readers_run_translates_in_the_browser(mixer, tiny, corpus, browser, tmp_path, capsys):
    run = tiny(mixer)
    assert cli.main(["export", str(run), "--web", str(tmp_path)]) == 0
    path = tmp_path / f"translator-{mixer}.js"
    assert str(path) in capsys.readouterr().out
    assert not (run / "test.scores.json").exists()  # an export leaves the run as it is

    header, tensors = read_web(path)
    assert header["about"]["updates"] == 10 and "bleu_int8" in header["about"]
    trained = load_model(run)
    lines = (corpus / "test.de").read_text(encoding="utf-8").splitlines() + ODD
    found = in_browser(browser, path, lines)
    same_in_pytorch(found, rounded(trained.model, tensors), trained.vocabularies.source, lines)


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """The demo's vocabulary, learned from its training text, and a hundred test sentences."""
    recipe = load_recipe("help-de-en-dynamic")
    data = recipe.data.corpus, recipe.data.source, recipe.data.target
    text = encode_corpus(*data, recipe.model.vocab_size, tmp_path_factory.mktemp("demo") / "text")
    return text.load_vocabularies().source, list(load_parallel(*data, "test").source[:100])


@pytest.mark.parametrize("mixer", MIXERS)
def test_the_shipped_model_writes_what_pytorch_writes(mixer, browser, demo):
    path, (vocabulary, lines) = STATIC / f"translator-{mixer}.js", demo
    header, tensors = read_web(path)
    assert path.stat().st_size < export.LARGEST
    assert header["about"]["bleu"] - header["about"]["bleu_int8"] < 0.5
    for name, values in pack_vocabulary(vocabulary).items():
        assert np.array_equal(values, tensors[name])
    model = rounded(build(load_recipe(f"help-de-en-{mixer}").model), tensors)
    lines = [*lines, *ODD]
    same_in_pytorch(in_browser(browser, path, lines), model, vocabulary, lines)


def test_rounding_is_within_half_a_level(recipe):
    model = build(recipe.model)
    weights = dequantize(quantize(model))
    for name, weight in model.named_parameters():
        level = weight.abs().amax(-1, keepdim=True) / 127 if weight.ndim == 2 else torch.zeros(1)
        assert ((weights[name] - weight).abs() <= 0.501 * level).all(), name


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        ({"mixer": "talk"}, "mixer talk; the page runs one of dynamic and attention"),
        ({"norm": "post"}, "model.norm is post; the page runs pre only"),
        ({"glu": False}, "model.glu is False; the page runs True only"),
    ],
)
def test_a_model_that_the_page_cannot_run_is_refused(model, reason, tiny, tmp_path, capsys):
    run = tiny(**model)
    capsys.readouterr()
    assert cli.main(["export", str(run), "--web", str(tmp_path / "x.js")]) == 2
    error = capsys.readouterr().err
    assert reason in error and error.count("\n") == 1
    assert not (tmp_path / "x.js").exists()


def test_the_exported_score_is_bleu_whatever_the_recipe_scores(tiny):
    trained = load_model(tiny())
    other = replace(trained.recipe, metric="rouge")
    scores = [greedy_bleu(trained._replace(recipe=recipe)) for recipe in (trained.recipe, other)]
    assert scores[0] == scores[1]


def test_the_exported_score_is_of_greedy_search_whatever_the_recipe_decodes_with(tiny, monkeypatch):
    """For a page's model, whose vocabulary is of bytes, `replace_unknown` is refused anyway."""
    trained = load_model(tiny())
    others = {
        "beam": 3,
        "lenpen": 0.5,
        "stepwise": True,
        "min_tokens": 3,
        "max_tokens": 4,
        "no_repeat_ngram_size": 2,
        "dictionary": "none.tsv",
        "context_window": 1,
        "batch_tokens": 99,
    }
    assert others.keys() | {"replace_unknown"} == {field.name for field in fields(DecodeConfig)}
    used = []

    def translate(model, vocabularies, lines, config, **options):
        used.append(config)
        return lines

    monkeypatch.setattr(translation, "translate", translate)
    for name, value in others.items():
        recipe = replace(trained.recipe, decode=replace(trained.recipe.decode, **{name: value}))
        greedy_bleu(trained._replace(recipe=recipe))
    assert used == [DecodeConfig(beam=1)] * len(others)


def test_other_mistakes_are_reported_in_one_line(tiny, tmp_path, capsys, monkeypatch):
    run = tiny()

    def refused(*arguments) -> str:
        capsys.readouterr()
        assert cli.main(["export", *map(str, arguments)]) == 2
        error = capsys.readouterr().err
        assert error.count("\n") == 1
        return error

    assert "no run directory" in refused(tmp_path / "nothing", "--web", tmp_path)
    assert "there is no directory" in refused(run, "--web", tmp_path / "none" / "x.js")
    assert "already exists in" in refused(run, "--web", run / "recipe.yaml")
    mine = tmp_path / "mine.js"
    mine.write_text("let answer = 42;\n")
    assert "already exists and is not an exported" in refused(run, "--web", mine)
    for name in ("mine.json", "none"):
        assert "make it first, or name a file that ends in .js" in refused(
            run, "--web", tmp_path / name
        )
    assert mine.read_text() == "let answer = 42;\n"
    monkeypatch.setattr(export, "LARGEST", 1000)
    assert "a page's maximum of 1,000: train with fewer" in refused(run, "--web", tmp_path / "x.js")


def test_the_page_tells_its_model_from_the_demo():
    with open(STATIC / "translator-dynamic.js", encoding="utf-8") as script:
        head = "".join(itertools.takewhile(lambda line: line.startswith("//"), script))
    updates, bleu = re.search(r"([\d,]+) updates,.* in int8 ([\d.]+);", head).groups()
    batch = int(re.search(r"batch_tokens: (\d+)", head)[1])
    demo = load_recipe("help-de-en-dynamic").train
    text = " ".join((ROOT / "book/translator.md").read_text(encoding="utf-8").split())
    assert f"{updates} updates of {batch:,}" in text
    assert f"instead of {demo.updates:,} of {demo.batch_tokens:,}" in text
    assert f"scores {bleu} BLEU, and the demo {ledger.read('demo')['numbers']['bleu']:.1f}" in text


@pytest.fixture
def opened(browser, tmp_path):
    """A function that opens the book's widget from a file, and waits for its first translation."""

    def opened(static=STATIC, viewport=DESK):
        text = (ROOT / "book/translator.md").read_text(encoding="utf-8")
        (block,) = re.findall(r"```{raw} html\n(.*?)```", text, re.DOTALL)
        (tmp_path / "book").mkdir()
        (tmp_path / "_static").symlink_to(static)
        path = tmp_path / "book/translator.html"
        path.write_text(f"<!doctype html><html lang=en><meta charset=utf-8>{block}", "utf-8")
        page = browser.new_page(viewport=viewport, reduced_motion="reduce")
        wrong = watch(page)
        page.goto(path.as_uri())
        page.wait_for_selector(READY)
        return page, wrong

    return opened


def test_a_sentence_is_typed_and_read_with_the_keyboard_alone(opened):
    page, wrong = opened(viewport=PHONE)
    page.keyboard.press("Tab")
    page.keyboard.press("ControlOrMeta+a")
    page.keyboard.type("Sie können die Datei nicht löschen.")
    page.keyboard.press("Enter")
    page.wait_for_selector(READY)
    translator = page.evaluate_handle("Translator.load(dynconvModels.dynamic)")
    expected = page.evaluate(
        "t => t.vocabulary.decode(t.translate('Sie können die Datei nicht löschen.'))", translator
    )
    status = page.get_by_role("status")  # a live region
    assert status.inner_text() == expected and len(expected.split()) > 2
    assert "ms per token" in page.locator(".time").inner_text()

    while page.evaluate("document.activeElement.name") != "translator-token":
        page.keyboard.press("Tab")
    assert "“können” is mixed from" in page.locator(".caption").inner_text()
    page.keyboard.press("ArrowRight")
    assert "“die” is mixed from" in page.locator(".caption").inner_text()
    for name, key in (("layer", "ArrowLeft"), ("head", "ArrowRight")):
        while page.evaluate("document.activeElement.name") != f"translator-{name}":
            page.keyboard.press("Tab")
        page.keyboard.press(key)
    assert page.locator(".caption").inner_text().startswith("Encoder, layer 2, head 2: “die”")
    assert page.locator(".bars li").count() == 7  # taps of layer 2
    weights = [float(text) for text in page.locator(".bars b").all_inner_texts()]
    assert sum(weights) == pytest.approx(1, abs=0.05)
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    page.close()
    assert not wrong


def test_the_model_is_switched_and_an_english_word_shows_what_its_step_had_read(opened):
    page, wrong = opened()
    page.get_by_text("Attention", exact=True).click()
    page.wait_for_function("document.querySelector('.translator').dataset.mixer == 'attention'")
    page.wait_for_selector(READY)
    page.get_by_role("group", name="English").locator("label").nth(2).click()
    assert page.locator(".bars span").first.inner_text() == "start"
    assert page.locator(".bars li").count() == 3  # the start, and two words
    assert page.locator(".caption").inner_text().startswith("Decoder, layer 3, head 1")
    count = page.get_by_role("group", name="English").locator("label").count()
    assert page.locator(".matrix svg g rect").count() == count * (count + 1) / 2  # causal
    page.close()
    assert not wrong


@pytest.mark.parametrize(
    "text, answer",
    [
        ("  ", "Type a sentence first."),
        (" ".join(["Die Datei."] * 80), "240 tokens are too many: shorten the sentence to 100."),
    ],
)
def test_what_has_no_translation_is_answered_in_one_line(opened, text, answer):
    """And nothing is left of the sentence before."""
    page, wrong = opened()
    page.fill("#translator-sentence", text)
    page.keyboard.press("Enter")
    page.wait_for_selector(f".output:text-is('{answer}')")
    assert page.locator(".time, .caption, .bars, .matrix").all_inner_texts() == [""] * 4
    assert page.locator("fieldset:not(.mixer) label").count() == 0
    page.click(".examples button")
    page.wait_for_selector(READY)
    assert page.locator("fieldset.head label").count() == 4
    page.close()
    assert not wrong


def test_a_part_of_a_character_is_shown_as_its_byte(opened):
    page, _ = opened()
    page.fill("#translator-sentence", "Die 😀.")
    page.keyboard.press("Enter")
    page.wait_for_selector(READY)
    tokens = page.get_by_role("group", name="German").locator("label").all_inner_texts()
    assert tokens == ["Die", "␣", "f0", "9f", "98", "80", ".", "⏎"]
    page.close()


BROKEN = """() => [...document.querySelectorAll(".bars span")].filter(e => {
    const text = document.createRange();
    text.selectNodeContents(e);
    return text.getClientRects().length > 1 || e.scrollWidth > e.clientWidth;
}).map(e => e.textContent)"""
SEEN = """() => {
    const bars = document.querySelector(".bars"), {left, right} = bars.getBoundingClientRect();
    const weight = bar => parseFloat(bar.querySelector("b").textContent);
    const inside = [...bars.querySelectorAll("li:not(.outside)")];
    const largest = inside.sort((a, b) => weight(b) - weight(a))[0];
    const place = largest.getBoundingClientRect();
    return [bars.scrollWidth > bars.clientWidth, left <= place.left && place.right <= right];
}"""


@pytest.mark.parametrize("viewport", [PHONE, DESK], ids=["phone", "desk"])
def test_the_largest_bar_is_in_view_and_labels_are_whole_words(opened, viewport):
    page, _ = opened(viewport=viewport)
    page.add_style_tag(content="body { line-height: 1.65 }")  # the theme's
    for token in page.get_by_role("group", name="German").locator("label").all():
        token.click()
        assert not page.evaluate(BROKEN)
        scrolls, seen = page.evaluate(SEEN)
        assert seen and scrolls == (viewport == PHONE)
    page.close()


def test_without_a_model_the_page_says_how_to_make_it(opened, tmp_path):
    static = tmp_path / "static"
    static.mkdir()
    for name in ("translator.js", "translator-page.js", "translator.css"):
        (static / name).symlink_to(STATIC / name)
    page, wrong = opened(static)
    assert "make it with dynconv export" in page.get_by_role("status").inner_text()
    page.close()
    assert len(wrong) == 2 and all("translator-dynamic.js" in w or "FILE_NOT" in w for w in wrong)
