"""Recipes: what is read, what is refused, and with which words."""

from dataclasses import replace

import pytest

from dynconv.config import ConvS2SConfig, Recipe, StackConfig
from dynconv.config import load as recipes
from dynconv.errors import UserError


def loaded(tmp_path, text: str, *overrides: str) -> Recipe:
    path = tmp_path / "mine.yaml"
    path.write_text(text, encoding="utf-8")
    return recipes.load(path, overrides)


def test_an_empty_recipe_is_the_defaults(tmp_path):
    assert loaded(tmp_path, "") == Recipe()


def test_values_and_overrides(tmp_path):
    text = "model: {encoder: {layers: 2, mixer: [dynamic, attention], kernel: [3, null]}}"
    recipe = loaded(tmp_path, text, "train.lr=5e-4", "train.clip=null", "data.corpus=here")
    assert recipe.model.encoder.each_layer() == [("dynamic", 3), ("attention", None)]
    assert recipe.train.lr == 5e-4  # YAML 1.1 reads 5e-4 as a string
    assert recipe.train.clip is None
    assert recipe.data.corpus == "here"


@pytest.mark.parametrize("name", [file.stem for file in sorted(recipes.SHIPPED.glob("*.yaml"))])
def test_shipped_recipes_are_valid_and_survive_a_round_trip(name, tmp_path):
    recipe = recipes.load(recipes.find(name))
    assert loaded(tmp_path, recipes.dump(recipe)) == recipe


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("trian: {}", "unknown key trian; did you mean train?"),
        ("train: {lerning_rate: 1}", "unknown key train.lerning_rate"),
        ("model: {encoder: {kernels: 3}}", "model.encoder.kernels; did you mean kernel?"),
        ("model: {heads: 3}", "model: 3 heads do not divide 1024 channels"),
        ("model: {encoder: {mixer: dynamics}}", "model.encoder.mixer"),
        ("model: {encoder: {layers: 2, kernel: [3]}}", "kernel lists 1 entries for 2 layers"),
        ("train: {updates: many}", "train.updates 'many'"),
        ("train: {updates: 10, warmup: 20}", "warmup 20 must be within the 10 updates"),
        ("train: {updates: 0}", "updates 0 must be at least 1"),
        ("train: {average: 9}", "average 9 needs more than the 5 kept"),
        ("decode: {beam: 0}", "beam 0 must be at least 1"),
        ("train: [", "not readable YAML"),
        ("just words", "a recipe is a mapping"),
    ],
)
def test_mistakes_are_one_line_that_names_the_file_and_the_key(tmp_path, text, words):
    with pytest.raises(UserError) as error:
        loaded(tmp_path, text)
    message = str(error.value)
    assert words in message
    assert "mine.yaml" in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("override", "words"),
    [("train.lr", "write it as key=value"), ("train.lr.x=1", "train.lr has no entries")],
)
def test_mistakes_in_overrides(tmp_path, override, words):
    with pytest.raises(UserError, match=words):
        loaded(tmp_path, "train: {lr: 1}", override)


def test_an_unknown_name_gets_the_nearest():
    with pytest.raises(UserError, match="did you mean help-de-en-dynamic?"):
        recipes.find("help-de-en-dynamc")


def test_differences_name_what_decides_training():
    changed = replace(Recipe(), train=replace(Recipe().train, lr=1e-3))
    changed = replace(changed, decode=replace(changed.decode, beam=1))
    assert recipes.differences(changed, Recipe()) == ["train.lr 0.001, not 0.0005"]
    other = recipes.differences(replace(Recipe(), model=ConvS2SConfig()), Recipe())
    assert "model.architecture convs2s, not encoder-decoder" in other
    assert "model.ffn None, not 4096" in other


LANGUAGE = """
model: {architecture: language-model}
metric: perplexity
train: {batch_tokens: 400, label_smoothing: 0.0}
"""
BASE = """
published: [{source: A, row: B, value: "1", metric: C}]
train: {lr: 1e-3, updates: 9, warmup: 3}
model: {encoder: {layers: 2, mixer: light, kernel: [3, 5]}, glu: false}
"""


def test_a_recipe_upon_another(tmp_path):
    (tmp_path / "ground.yaml").write_text(BASE)
    recipe = loaded(tmp_path, "base: ground\ntrain: {lr: 2e-3}\nmodel: {encoder: {mixer: dynamic}}")
    assert (recipe.train.lr, recipe.train.updates) == (2e-3, 9)
    assert recipe.model.encoder == StackConfig(2, "dynamic", (3, 5))
    assert recipe.published == ()  # that was of the base


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("base: grund", "no recipe 'grund'"),
        ("base: mine", "no recipe 'mine': not shipped, and no such file; dynconv train --list"),
        ("base: loop", "base mine leads back to it"),
        ("model: {architecture: convs}", "model.architecture 'convs' is not known; did you mean"),
        ("model: {architecture: convs2s, ffn: 3}", "unknown key model.ffn"),
        ("model: {architecture: language-model}", "a language model has data.source: null"),
        ("[1, 2]", "a recipe is a mapping"),
        ("base: 3", "base 3 is not the name of a recipe"),
        ("base: list", "a recipe is a mapping"),
        ("model: {architecture: [a]}", "is not known"),
        ("model: {dropout: 1.5}", "model: dropout 1.5 must be at least 0 and below 1"),
        ("model: {vocab_size: [1]}", "model.vocab_size "),
        ("model: {encoder: {layers: 0}}", "layers 0 must be at least 1"),
        ("decode: {replace_unknown: true}", "replace_unknown is for model.architecture convs2s"),
        (
            LANGUAGE + "data: {source: null, block: 500}",
            "data.block 500 exceeds train.batch_tokens",
        ),
    ],
)
def test_mistakes_in_what_a_recipe_is_made_of(tmp_path, text, words):
    (tmp_path / "list.yaml").write_text("[1]")
    (tmp_path / "loop.yaml").write_text("base: mine")
    with pytest.raises(UserError, match=words) as error:
        loaded(tmp_path, text)
    assert ".yaml" in str(error.value) or "no recipe" in str(error.value)
    assert "int" not in str(error.value).split(" ")[1]  # a type is no key


def test_a_recipe_may_be_named_as_the_shipped_one_it_builds_on(tmp_path):
    path = tmp_path / "help-de-en-light.yaml"
    path.write_text("base: help-de-en-light\ntrain: {lr: 1e-4}")
    recipe = recipes.load(path)
    assert recipe.train.lr == 1e-4 and recipe.model.encoder.mixer == "light"
