"""Every entry of every section: what is out of range is refused, in one line that says which."""

import re

import pytest
import yaml
from helpers.schema import KEYS, bounds

from dynconv import cli
from dynconv.config import dump_recipe, load_recipe
from dynconv.config.tree import merge, parse_overrides
from dynconv.config.unused import find_unused
from dynconv.errors import UserError

HUGE = 10**30


NUMBERS = [(recipe, key, *found) for recipe, key, schema in KEYS if (found := bounds(schema))]


def refused(recipe: str, override: str) -> str:
    with pytest.raises(UserError) as error:
        load_recipe(recipe, [override])
    said = str(error.value)
    assert "\n" not in said
    assert not re.search(r"\b(None|True|False)\b|Field required|\d, ?\d[^]]*\)", said), said
    return said


def test_enough_bounds_are_tested():
    assert len(KEYS) > 80 and len(NUMBERS) > 50


@pytest.mark.parametrize(("recipe", "key", "kind", "limits"), NUMBERS)
def test_numbers_out_of_range_are_refused(recipe, key, kind, limits):
    """Just outside each bound, and what is no number of this kind at all."""
    wrong = ["true", ".nan", ".inf", "-.inf", "'3'", "[[1]]", "{a: 1}", "many"]
    if "ge" in limits:
        wrong.append(limits["ge"] - 1)
    wrong += [limits[bound] for bound in ("gt", "lt") if bound in limits]
    if kind is int:
        wrong += [limits["le"] + 1, HUGE, -HUGE, 1.5, "1e0"]
    for value in wrong:
        assert key in refused(recipe, f"{key}={value}"), value


@pytest.mark.parametrize(("recipe", "key", "kind", "limits"), NUMBERS)
def test_numbers_at_their_bounds_are_accepted(recipe, key, kind, limits):
    """They pass the schema; other entries may not go with them, which is said in other words."""
    for bound, value in limits.items():
        value = value if bound in ("ge", "le") else value + (1e-3 if bound == "gt" else -1e-3)
        try:
            load_recipe(recipe, [f"{key}={value}"])
        except UserError as error:
            assert f"{key} {value} must be" not in str(error) or "must be a list" in str(error)


@pytest.mark.parametrize(("recipe", "key", "schema"), [k for k in KEYS if not bounds(k[2])])
def test_settings_that_are_not_numbers_refuse_numbers(recipe, key, schema):
    for value in ("7", ".nan", "[1]", HUGE):
        assert key.rpartition(".")[0] in refused(recipe, f"{key}={value}")


def test_every_bound_names_key_value_and_limit():
    said = refused("help-de-en-dynamic", "train.label_smoothing=1.5")
    assert "train.label_smoothing 1.5 must be a number at least 0 and below 1" in said
    said = refused("help-de-en-dynamic", f"train.updates={HUGE}")
    assert f"train.updates {HUGE} must be a whole number at least 1 and at most 2,147," in said
    said = refused("help-de-en-dynamic", "train.betas=[2,3]")
    assert "train.betas.0 2 must be a number at least 0 and below 1" in said


@pytest.mark.parametrize(
    "override", ["model.channels=0", "model.ffn=0", "train.betas=[2,3]", "train.lr=true"]
)
def test_nothing_is_written_before_a_setting_is_refused(tmp_path, capsys, override):
    run = tmp_path / "run"
    assert cli.main(["train", "help-de-en-dynamic", override, "--run", str(run)]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not run.exists()


UNREAD = [
    ("help-de-en-dynamic", "train.momentum=0.9", "optimizer adamw does not use it"),
    ("wmt14-en-de-convs2s", "train.eps=1e-6", "optimizer nag does not use it"),
    ("wmt14-en-de-convs2s", "train.betas=[0.9, 0.999]", "optimizer nag does not use it"),
    ("wmt14-en-de-convs2s", "train.lr_start=1e-5", "warmup is 0"),
    ("iwslt14-de-en-dynamic", "train.lr_end=1e-5", "schedule inverse_sqrt does not use it"),
    ("help-de-en-attention", "model.glu=false", "no mixer of this model reads it"),
    ("help-de-en-attention", "model.weight_dropout=0.1", "no mixer of this model reads it"),
    ("help-de-en-dense", "model.input_dropout=0.1", "no mixer of this model reads it"),
    ("help-de-en-depthwise", "model.normalize=none", "no mixer of this model reads it"),
    ("help-de-en-talk", "model.normalize=sigmoid", "no mixer of this model reads it"),
    ("austen-dynamic", "model.attention_dropout=0.1", "no mixer of this model reads it"),
    (
        "austen-dynamic",
        "model.div_value=2",
        "it is for models with cutoffs and without band_widths",
    ),
    ("austen-dynamic", "model.band_widths=[192]", "it is for models with cutoffs"),
    ("austen-dynamic", "model.softmax_dropout=0.1", "it is for models with cutoffs"),
    ("austen-dynamic", "data.max_source_tokens=9", "a language model has no source"),
    ("austen-dynamic", "data.max_example_tokens=9", "the text is cut into blocks"),
    ("austen-dynamic", "decode.beam=9", "beam search is for translators"),
    ("help-de-en-dynamic", "decode.context_window=9", "only a language model reads it"),
    ("help-de-en-dynamic", "decode.dictionary=words.tsv", "replace_unknown is false"),
]


@pytest.mark.parametrize(("recipe", "override", "reason"), UNREAD)
def test_a_setting_that_nothing_reads_is_refused(recipe, override, reason, tmp_path):
    key, _, value = override.partition("=")
    assert f"{key} " in refused(recipe, override) and reason in refused(recipe, override)
    section, name = key.split(".")
    path = tmp_path / "mine.yaml"
    path.write_text(f"base: {recipe}\n{section}: {{{name}: {value}}}")
    with pytest.raises(UserError, match="mine.yaml: .* has no effect"):
        load_recipe(path)


@pytest.mark.parametrize(
    ("base", "override", "inherited"),
    [
        ("base: wikitext-103-dynamic", "model.cutoffs=[]", "model.softmax_dropout"),
        ("base: billion-word-dynamic", "model.cutoffs=[]", "model.band_widths"),
        (
            "base: wmt16-en-ro-convs2s-words\ndecode: {dictionary: words.tsv}",
            "decode.replace_unknown=false",
            "decode.dictionary",
        ),
    ],
)
def test_an_inherited_entry_may_have_no_effect(base, override, inherited, tmp_path):
    (tmp_path / "base.yaml").write_text(base, encoding="utf-8")
    path = tmp_path / "mine.yaml"
    path.write_text(f"base: {tmp_path}/base.yaml", encoding="utf-8")
    assert inherited in find_unused(load_recipe(path, [override]))


@pytest.mark.parametrize(("recipe", "override", "reason"), UNREAD)
def test_a_resolved_recipe_may_have_it(recipe, override, reason, tmp_path):
    """That of a run from before this was refused, and what a recipe has from its base."""
    tree = yaml.safe_load(dump_recipe(load_recipe(recipe)))
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(merge(tree, parse_overrides([override]))), encoding="utf-8")
    key, _, _ = override.partition("=")
    section, name = key.split(".")
    assert getattr(getattr(load_recipe(path), section), name) is not None
    above = tmp_path / "above.yaml"
    above.write_text("base: recipe\ndecode: {batch_tokens: 3}")
    assert load_recipe(above).decode.batch_tokens == 3


def test_the_default_of_a_setting_that_nothing_reads_may_be_said():
    assert load_recipe("help-de-en-dynamic", ["train.momentum=0.99"]).train.momentum == 0.99


def test_heads_that_nothing_reads_need_not_divide_the_channels():
    """They could not be set either: `model.heads` has no effect in such a model."""
    average = ["model.decoder.mixer=average", "model.channels=30"]
    assert load_recipe("austen-dynamic", average).model.channels == 30
    assert "4 heads do not divide 30" in refused("austen-dynamic", "model.channels=30")


@pytest.mark.parametrize(
    ("recipe", "override", "said"),
    [
        ("help-de-en-dynamic", "data.source=null", "data.source null"),
        ("austen-dynamic", "decode.stepwise=true", "decode.stepwise true has no effect"),
        ("austen-dynamic", "model.cutoffs=[400,300]", "cutoffs [400,300] must grow"),
        ("austen-dynamic", "model={cutoffs: [9], div_value: 1000000}", "bands of width ["),
    ],
)
def test_values_are_shown_as_a_recipe_states_them(recipe, override, said):
    assert said in refused(recipe, override)


def test_outputs_longer_than_the_positions_are_refused_before_training():
    load_recipe("help-de-en-convs2s", ["decode.min_tokens=512"])
    words = "decode.min_tokens 513 exceeds model.max_positions 512"
    assert words in refused("help-de-en-convs2s", "decode.min_tokens=513")
