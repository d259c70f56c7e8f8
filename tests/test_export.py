"""`dynconv export`: from the same weights, the page's JavaScript writes PyTorch's tokens."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from browser import watch
from conftest import ROOT, sized_stack

from dynconv import cli
from dynconv.config import load_recipe
from dynconv.decode import greedy
from dynconv.lab import export
from dynconv.lab.export import pack, pack_vocabulary, read_web, unpack
from dynconv.models import build
from dynconv.text import load_parallel, pad, prepare
from dynconv.train import load_model, train

STATIC = ROOT / "book/_static"
MIXERS = ("dynamic", "attention")
ODD = [
    "  zwei  und\tzwanzig ",
    "Größe: 3½ – „Straße“ 東京 🙂",
    "cafe\u0301\u00a0'll don't\u3000<eos> \x85 x",
    "   ",
    "",
]


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


def in_browser(browser, path, lines: list[str]) -> list[dict[str, list[int]]]:
    """The ids of each line and of its translation, by the page's JavaScript."""
    page = browser.new_page()
    wrong = watch(page)
    for script in (STATIC / "translator.js", path):
        page.add_script_tag(path=script)
    found = page.evaluate(
        """async lines => {
            const translator = await Translator.load(Object.values(dynconvModels)[0]);
            return lines.map(line => {
                const source = translator.vocabulary.encode(line);
                const target = translator.translate(line);
                return {source, target, text: translator.vocabulary.decode(target)};
            });
        }""",
        lines,
    )
    page.close()
    assert not wrong
    return found


def in_pytorch(model, vocabulary, lines: list[str]) -> list[dict[str, list[int]]]:
    """The same by PyTorch, with the same weights."""
    sources = vocabulary.encode(lines)
    full = [ids for ids in sources if ids]
    written = iter(greedy(model, *pad(full, after=1)))
    targets = [next(written) if ids else [] for ids in sources]
    return [
        {"source": ids, "target": out, "text": vocabulary.decode(out)}
        for ids, out in zip(sources, targets, strict=True)
    ]


def rounded(model, tensors):
    """A model with exported weights."""
    missing, unexpected = model.load_state_dict(unpack(tensors), strict=False)
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
    expected = in_pytorch(rounded(trained.model, tensors), trained.vocabularies.source, lines)
    assert in_browser(browser, path, lines) == expected


@pytest.mark.parametrize("mixer", MIXERS)
def test_the_shipped_model_writes_what_pytorch_writes(mixer, browser, tmp_path):
    path = STATIC / f"translator-{mixer}.js"
    if not path.exists():
        pytest.skip(f"{path} is not made yet: dynconv export RUN --web book/_static")
    recipe = load_recipe(f"help-de-en-{mixer}")
    data = recipe.data.corpus, recipe.data.source, recipe.data.target
    _, tensors = read_web(path)
    assert path.stat().st_size < export.LARGEST

    text = prepare(*data, recipe.model.vocab_size, tmp_path / "text")
    vocabulary = text.vocabularies().source
    for name, values in pack_vocabulary(vocabulary).items():
        assert np.array_equal(values, tensors[name])
    lines = list(load_parallel(*data, "test").source[:100])
    model = rounded(build(recipe.model), tensors)
    assert in_browser(browser, path, lines) == in_pytorch(model, vocabulary, lines)


def test_rounding_is_within_half_a_level(recipe):
    model = build(recipe.model)
    weights = unpack(pack(model))
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


def test_other_mistakes_are_one_line(tiny, tmp_path, capsys, monkeypatch):
    run = tiny()

    def refused(*arguments) -> str:
        capsys.readouterr()
        assert cli.main(["export", *map(str, arguments)]) == 2
        error = capsys.readouterr().err
        assert error.count("\n") == 1
        return error

    assert "no run directory" in refused(tmp_path / "nothing", "--web", tmp_path)
    assert "there is no directory" in refused(run, "--web", tmp_path / "none" / "x.js")
    monkeypatch.setattr(export, "LARGEST", 1000)
    assert "a page takes 1,000: train with fewer" in refused(run, "--web", tmp_path / "x.js")
