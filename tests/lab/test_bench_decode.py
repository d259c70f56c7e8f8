"""`dynconv bench decode`: the command of its record repeats every setting of the search."""

from dataclasses import fields, replace

from conftest import write_recipe

from dynconv.config import ConvS2SConfig, ConvStackConfig, DecodeConfig, load_recipe
from dynconv.lab.bench.decode import overrides_of_decode


def test_the_record_of_the_decoding_benchmark_repeats_every_setting(recipe, tmp_path):
    stack = ConvStackConfig(1, 8, 3)
    model = ConvS2SConfig(vocab_size=30, embedding=8, encoder=stack, decoder=stack)
    words = replace(recipe, data=replace(recipe.data, vocabulary="words"), model=model)
    decode = DecodeConfig(
        beam=3,
        lenpen=0.5,
        stepwise=True,
        min_tokens=2,
        max_tokens=9,
        no_repeat_ngram_size=2,
        replace_unknown=True,
        dictionary="a file.tsv",
        batch_tokens=99,
    )
    unchanged = [f.name for f in fields(DecodeConfig) if getattr(decode, f.name) == f.default]
    assert unchanged == ["context_window"]  # which only language models have
    path = write_recipe(words, tmp_path)
    for config in (decode, replace(decode, replace_unknown=False)):  # without its dictionary
        overrides = overrides_of_decode(replace(words, decode=config))
        read = load_recipe(path, overrides).decode
        assert read == (config if config.replace_unknown else replace(config, dictionary=None))
