"""Recipes: what is read, what is refused, and with which words."""

import re
from dataclasses import replace
from itertools import permutations

import pytest

from dynconv import schema_errors
from dynconv.config import (
    ConvS2SConfig,
    Recipe,
    StackConfig,
    dump_recipe,
    list_differences,
    load_experiment,
    load_recipe,
    recipe_names,
    require_recipe,
)
from dynconv.errors import UserError
from dynconv.schema_errors import entry_keys


def loaded(tmp_path, text: str, *overrides: str) -> Recipe:
    path = tmp_path / "mine.yaml"
    path.write_text(text, encoding="utf-8")
    return load_recipe(path, overrides)


def test_an_empty_recipe_is_the_defaults(tmp_path):
    assert loaded(tmp_path, "") == Recipe()


def test_values_and_overrides(tmp_path):
    text = "model: {encoder: {layers: 2, mixer: [dynamic, attention], kernel_size: [3, null]}}"
    recipe = loaded(tmp_path, text, "train.lr=5e-4", "train.clip_norm=null", "data.corpus=here")
    assert recipe.model.encoder.each_layer() == [("dynamic", 3), ("attention", None)]
    assert recipe.train.lr == 5e-4  # YAML 1.1 would read 5e-4 as text
    assert recipe.train.clip_norm is None
    assert recipe.data.corpus == "here"


@pytest.mark.parametrize("name", recipe_names())
def test_shipped_recipes_are_valid_and_survive_a_round_trip(name, tmp_path):
    recipe = load_recipe(name)
    assert loaded(tmp_path, dump_recipe(recipe)) == recipe


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("trian: {}", "unknown key trian; did you mean train?"),
        ("train: {lerning_rate: 1}", "unknown key train.lerning_rate"),
        ("train: {'': {lr: 1}}", "unknown key train.''; there are updates"),
        (
            "model: {encoder: {kernel_sizes: 3}}",
            "model.encoder.kernel_sizes; did you mean kernel_size?",
        ),
        ("model: {heads: 3}", "model: 3 heads do not divide 1024 channels"),
        ("model: {encoder: {mixer: dynamics}}", "model.encoder.mixer"),
        (
            "model: {encoder: {layers: 2, kernel_size: [3]}}",
            "kernel_size lists 1 entries for 2 layers",
        ),
        ("train: {updates: many}", "train.updates 'many'"),
        ("train: {updates: 10, warmup: 20}", "warmup 20 must be within the 10 updates"),
        ("train: {updates: 0}", "train.updates 0 must be a whole number at least 1"),
        ("train: {lr: 1e-8}", "lr_start 1e-07 exceeds lr 1e-08: lower lr_start or raise lr"),
        ("train: {lr: 0}", "lr_start 1e-07 exceeds lr 0: lower lr_start or raise lr"),
        (
            "model: {encoder: {reach: 0}}",
            "model.encoder.reach 0 must be a whole number at least 1 and at most 1,000,000 or "
            "null, or a list of these",
        ),
        (
            "data: {source: null}",
            "data.source null does not fit model.architecture encoder-decoder: set data.source to "
            "the suffix of the source, or choose another architecture",
        ),
        (
            "metric: perplexity",
            "metric perplexity does not fit model.architecture encoder-decoder: set metric to "
            "another metric, such as bleu",
        ),
        (
            "train: {schedule: plateau, lr_end: 1}",
            "lr_end 1 exceeds lr 0.0005: lower lr_end or raise lr",
        ),
        (
            "train: {schedule: cosine, lr_end: 1}",
            "lr_end 1 exceeds lr 0.0005: lower lr_end or raise lr",
        ),
        (
            "{model: {vocab_size: 300}, train: {label_smoothing: 0.999}}",
            "train.label_smoothing 0.999 exceeds 299/300",
        ),
        ("train: {average_checkpoints: 9}", "average_checkpoints 9 exceeds keep_checkpoints 5: "),
        ("decode: {beam: 0}", "decode.beam 0 must be a whole number at least 1"),
        ("train: {lr: null}", "train.lr null must be a number"),
        ("train: {updates: true}", "train.updates true must be a whole number"),
        (
            "train: {betas: [0.9]}",
            "train.betas [0.9] must be a list of 2, with each entry a number at least 0 and below",
        ),
        ("train: {betas: []}", "train.betas [] must be a list of 2"),
        ("train: {betas: [0.9, null]}", "train.betas.1 null must be a number at least 0"),
        ("published: [{source: a}]", "published.0.row is missing"),
        ("decode: {beam: [true, null, 'a']}", "decode.beam [true, null, 'a'] must be a whole"),
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
    [("train.lr", "write it as key=value"), ("train.lr.x=1", "train.lr {x: 1} must be a number")],
)
def test_mistakes_in_overrides(tmp_path, override, words):
    with pytest.raises(UserError, match=words):
        loaded(tmp_path, "train: {lr: 1}", override)


EXAMPLES = re.findall(
    r"^    (\w+: \{.*\}) {2,}(.*?)(?: \.\.\.)?$", schema_errors.__doc__, re.MULTILINE
)


@pytest.mark.parametrize(("text", "error"), EXAMPLES)
def test_the_table_of_errors_is_true(tmp_path, text, error):
    with pytest.raises(UserError) as caught:
        loaded(tmp_path, text)
    assert error in str(caught.value)


@pytest.mark.parametrize("value", ['"a\\nb"', "null", "{}", "[[1]]", "{architecture: convs2s}"])
@pytest.mark.parametrize("name", ["help-de-en-dynamic", "austen-dynamic"])
def test_every_error_is_one_line(name, value):
    same = [f"data.source={value}", f"data.target={value}"]
    for overrides in [same, *([f"{key}={value}"] for key in dict.fromkeys(entry_keys(Recipe)))]:
        try:
            load_recipe(name, overrides)
        except UserError as error:
            assert "\n" not in str(error), overrides


def test_an_unknown_name_gets_the_nearest():
    with pytest.raises(UserError, match="did you mean help-de-en-dynamic?"):
        require_recipe("help-de-en-dynamc")


def test_differences_name_every_entry_that_is_not_ignored():
    changed = replace(Recipe(), train=replace(Recipe().train, lr=1e-3))
    changed = replace(changed, decode=replace(changed.decode, beam=1))
    assert list_differences(changed, Recipe(), ("decode.",)) == ["train.lr 0.001, not 0.0005"]
    assert "decode.beam 1, not 5" in list_differences(changed, Recipe())
    other = list_differences(replace(Recipe(), model=ConvS2SConfig()), Recipe())
    assert "model.architecture convs2s, not encoder-decoder" in other
    assert "model.ffn null, not 4096" in other


LANGUAGE = """
model: {architecture: language-model}
metric: perplexity
train: {batch_tokens: 400, label_smoothing: 0.0}
"""
BASE = """
published: [{source: A, row: B, value: "1", metric_in_words: C}]
train: {lr: 1e-3, updates: 9, warmup: 3}
model: {encoder: {layers: 2, mixer: light, kernel_size: [3, 5]}, glu: false}
"""


def test_the_defaults_of_a_language_model_are_valid(tmp_path):
    text = "{data: {source: null}, model: {architecture: language-model}}"
    recipe = loaded(tmp_path, text)
    assert recipe.metric == "perplexity" and recipe.train.label_smoothing == 0
    with pytest.raises(UserError, match="label_smoothing 0.1 must be 0 for a language model"):
        loaded(tmp_path, text, "train.label_smoothing=0.1")


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
        ("base: loop", "its base leads back to it"),
        ("model: {architecture: convs}", "model.architecture 'convs' is not known; did you mean"),
        ("model: {architecture: convs2s, ffn: 3}", "unknown key model.ffn"),
        ("model: {architecture: language-model}", "data.source de does not fit"),
        ("[1, 2]", "a recipe is a mapping"),
        ("base: 3", "base 3 is not the name of a recipe"),
        ("base: list", "a recipe is a mapping"),
        ("model: {architecture: [a]}", "is not known"),
        ("model: {dropout: 1.5}", "model.dropout 1.5 must be a number at least 0 and below 1"),
        ("model: {vocab_size: [1]}", "model.vocab_size "),
        ("model: {encoder: {layers: 0}}", "model.encoder.layers 0 must be a whole"),
        (
            "decode: {replace_unknown: true}",
            "replace_unknown true needs the attention of model.architecture convs2s",
        ),
        ("data: {source: en, target: en}", "source and target are both 'en': name two suffixes"),
        (
            LANGUAGE + "data: {source: null, block_size: 500}",
            "data.block_size 500 exceeds train.batch_tokens",
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
    recipe = load_recipe(path)
    assert recipe.train.lr == 1e-4 and recipe.model.encoder.mixer == "light"


def test_the_old_spelling_of_a_stack_is_still_read(tmp_path):
    """`kernel` is what the layers' mixers take it for."""

    def stack(text: str, *overrides: str) -> StackConfig:
        return loaded(tmp_path, f"model: {{encoder: {{{text}}}}}", *overrides).model.encoder

    assert stack("layers: 2, mixer: light, kernel: [3, 5]") == StackConfig(2, "light", (3, 5))
    assert stack("layers: 2, mixer: talk, kernel: 4") == StackConfig(2, "talk", reach=4)
    assert stack("layers: 2, mixer: attention, kernel: 3") == StackConfig(2, "attention", window=3)
    assert stack("layers: 2, mixer: average, kernel: null") == StackConfig(2, "average")
    mixed = stack("layers: 3, mixer: [light, talk, attention], kernel: [3, 2, null]")
    mixers = ("light", "talk", "attention")
    assert mixed == StackConfig(3, mixers, (3, None, None), (None, 2, None))
    assert mixed.each_layer() == [("light", 3), ("talk", 2), ("attention", None)]
    new = "layers: 2, mixer: light, kernel_size: 5"
    assert stack(new, "model.encoder.kernel=3") == StackConfig(2, "light", 3)
    both = "model.encoder.kernel=2", "model.encoder.mixer=talk"
    assert stack(new, *both) == stack(new, *reversed(both)) == StackConfig(2, "talk", reach=2)
    convs2s = loaded(tmp_path, "model: {architecture: convs2s, encoder: {kernel: 5}}")
    assert convs2s.model.encoder.kernel_size == 5


def test_the_old_names_of_settings_are_still_read(tmp_path):
    """In recipes, in what is built on them, and on the command line; the later one holds."""
    old = "{data: {max_tokens: 9}, train: {skip: 1, keep: 2, average: 2, validate_every: 5}}"
    recipe = loaded(tmp_path, old, "train.keep=3")
    train = recipe.train
    assert (train.max_skipped, train.keep_checkpoints, train.average_checkpoints) == (1, 3, 2)
    assert (train.checkpoint_every, recipe.data.max_example_tokens) == (5, 9)
    assert "keep:" not in dump_recipe(recipe)
    mixed = loaded(tmp_path, "train: {keep_checkpoints: 7}", "train.keep=8")
    assert mixed.train.keep_checkpoints == 8
    with pytest.raises(UserError, match="unknown key train.keep; "):
        loaded(tmp_path, "train: {keep: 7, keep_checkpoints: 7}")
    old = "{train: {clip: 0.5}, decode: {no_repeat: 3}, model: {encoder: {width: 5}}}"
    recipe = loaded(tmp_path, old, "model.decoder.width=[3, 5, 7, 9, 11, 13]")
    assert (recipe.train.clip_norm, recipe.decode.no_repeat_ngram_size) == (0.5, 3)
    assert (recipe.model.encoder.kernel_size, recipe.model.decoder.kernel_size[-1]) == (5, 13)
    assert load_recipe("help-de-en-ssm", ["model.state=8"]).model.state_size == 8
    talk = load_recipe("help-de-en-talk", ["model.divide_by_reach=false"])
    assert not talk.model.divide_by_max_length
    old = loaded(tmp_path, "train: {optimizer: adam, weight_decay: 0.1}", "train.optimizer=adam")
    assert old.train.optimizer == "adamw"
    with pytest.raises(UserError, match="train.optimizer 'adem' .*adamw"):
        loaded(tmp_path, "train: {optimizer: adem}")
    language = load_recipe("austen-dynamic", ["data.block=64", "decode.context=9"])
    assert (language.data.block_size, language.decode.context_window) == (64, 9)
    with pytest.raises(
        UserError, match="kernel_size 5 has no effect: mixer attention takes no kernel_size; leave"
    ):
        load_recipe("help-de-en-attention", ["model.encoder.width=5"])
    path = tmp_path / "mine.yaml"
    path.write_text("base: austen-dynamic\ndata: {max_tokens: 9}")
    with pytest.raises(UserError, match="data.max_example_tokens 9 has no effect: the text is cut"):
        load_recipe(path)
    old = BASE.replace("metric_in_words", "metric")
    assert loaded(tmp_path, old).published == loaded(tmp_path, BASE).published
    rows = (
        "{source: A, metric: B, laptop: {base: C, metric: D}, rows: [{name: E, recipe: F, row: G}]}"
    )
    path.write_text(rows)
    table = load_experiment(path)
    assert (table.metric_in_words, table.laptop.metric_in_words) == ("B", "D")
    assert table.rows[0].printed_name == "G"


def test_old_numbers_of_tokens_without_eos_keep_their_meaning(tmp_path):
    """Those of today include <eos>, as data.max_length and decode.max_length always did."""
    old = "{data: {max_source: 7, max_length: 9}, decode: {min_length: 3, max_length: 4}}"
    recipe = loaded(tmp_path, old)
    assert (recipe.data.max_source_tokens, recipe.data.max_example_tokens) == (8, 9)
    assert (recipe.decode.min_tokens, recipe.decode.max_tokens) == (4, 4)
    assert loaded(tmp_path, dump_recipe(recipe)) == recipe
    assert loaded(tmp_path, "{data: {max_source: 1024}, decode: {min_length: 0}}") == Recipe()
    assert loaded(tmp_path, old, "decode.min_tokens=2").decode.min_tokens == 2
    assert loaded(tmp_path, old, "decode.min_length=1").decode.min_tokens == 2
    with pytest.raises(UserError, match="decode.min_tokens 'few' must be a whole number"):
        loaded(tmp_path, "decode: {min_length: few}")


def test_normalize_none_still_leaves_the_sums_of_talk_undivided(tmp_path):
    """It meant this for TaLK, and for LightConv and DynamicConv that kernels stay as drawn."""

    def both(encoder: str, normalize: str) -> tuple[str, bool]:
        stacks = f"encoder: {encoder}, decoder: {{layers: 2, mixer: talk, reach: 3}}"
        recipe = loaded(tmp_path, f"model: {{{stacks}, normalize: {normalize}}}")
        assert loaded(tmp_path, dump_recipe(recipe)) == recipe
        return recipe.model.normalize, recipe.model.divide_by_max_length

    talk = "{layers: 2, mixer: talk, reach: 3}"
    assert both(talk, "none") == ("softmax", False)
    assert both(talk, "softmax") == ("softmax", True)
    assert both("{layers: 2, mixer: light, kernel_size: 3}", "none") == ("none", False)
    with pytest.raises(UserError, match="model.normalize none has no effect"):
        load_recipe("help-de-en-talk", ["model.normalize=none", "model.divide_by_max_length=true"])


def test_the_order_of_overrides_does_not_matter_to_a_new_architecture():
    overrides = ["model.embedding=8", "model.architecture=convs2s", "model.vocab_size=300"]
    recipes = [load_recipe("help-de-en-dynamic", order) for order in permutations(overrides)]
    assert recipes[0].model.embedding == 8 and recipes == [recipes[0]] * len(recipes)


def test_another_mixer_does_not_take_the_kernel_size_of_the_one_before():
    """Attention in place of a convolution is full attention, not windows of its kernel size."""
    attends = [f"model.{side}.mixer=attention" for side in ("encoder", "decoder")]
    model = load_recipe("help-de-en-dynamic", attends).model
    assert model.encoder == StackConfig(3, "attention") == model.decoder
    assert model == load_recipe("help-de-en-attention").model
    with pytest.raises(UserError, match="model.encoder: mixer talk needs a reach"):
        load_recipe("help-de-en-dynamic", ["model.encoder.mixer=talk"])
    with pytest.raises(
        UserError, match="kernel_size 5 has no effect: mixer attention takes no kernel_size; leave"
    ):
        load_recipe("help-de-en-dynamic", [attends[0], "model.encoder.kernel_size=5"])
    one = load_recipe("help-de-en-dynamic", ["model.encoder.mixer=[dynamic, attention, light]"])
    assert one.model.encoder.kernel_size == (3, None, 15)
