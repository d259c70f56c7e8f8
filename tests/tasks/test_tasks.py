"""Both tasks keep what `Task` promises: their text, loss, validation and evaluation."""

import json
from dataclasses import fields, replace
from typing import NamedTuple

import pytest
import torch
from torch import nn

from dynconv.config import DataConfig, DecodeConfig, LanguageModelConfig, StackConfig
from dynconv.models import build
from dynconv.tasks import Task, Translation, task_of
from dynconv.tasks.translation import describe_search
from dynconv.text import PreparedCorpus, Vocabularies, collate_pairs, encode_corpus
from dynconv.train.update import BatchLoss


class Case(NamedTuple):
    task: Task
    corpus: PreparedCorpus
    vocabularies: Vocabularies
    model: nn.Module


@pytest.fixture(params=["translation", "language"])
def case(request, recipe, corpus, prepared, tmp_path) -> Case:
    """A task with a small prepared corpus, and a model that is not trained."""
    if request.param == "language":
        prepared = encode_corpus(str(corpus), None, "en", 270, tmp_path / "prepared")
        model = LanguageModelConfig(
            vocab_size=270, channels=16, ffn=16, heads=2, decoder=StackConfig(1, "dynamic", 3)
        )
        config = replace(recipe.train, label_smoothing=0.0)
        data = DataConfig(str(prepared.directory), None, "en")
        recipe = replace(recipe, data=data, model=model, train=config, metric="perplexity")
    else:
        recipe = replace(recipe, data=replace(recipe.data, corpus=str(prepared.directory)))
    torch.manual_seed(0)
    model = build(recipe.model).eval()
    return Case(task_of(recipe), prepared, prepared.load_vocabularies(), model)


def test_the_loss_of_a_batch_is_the_sum_over_its_examples(case):
    examples = case.task.training_examples(case.corpus)
    whole = case.task.loss(case.model, examples.batch(range(4)))
    parts = [case.task.loss(case.model, examples.batch([i])) for i in range(4)]
    torch.testing.assert_close(whole, torch.stack(parts).sum(), rtol=1e-5, atol=0)


def test_sources_are_cut_alike_in_training_and_validation(case):
    recipe = case.task.recipe
    task = task_of(replace(recipe, data=replace(recipe.data, max_source_tokens=3)))
    valid = task.encode_split(case.corpus, case.vocabularies, "valid").examples
    for examples in (task.training_examples(case.corpus), valid):
        longest = examples.lengths(range(len(examples)))[:, 0].max()
        assert longest == (3 if task.recipe.data.source else 0)  # with <eos>


def test_an_evaluation_records_the_settings_that_it_depends_on(case):
    result = case.task.evaluate(case.model, case.vocabularies, "test")
    record = result.settings
    assert json.loads(json.dumps(record)) == record
    assert sum(len(score.records()) for score in result.scores) == 2
    decode = case.task.recipe.decode
    if case.task.recipe.data.source is None:
        kept = record["block_size"], record["context_window"]
        assert kept == (None, decode.context_window)
    else:
        names = {field.name for field in fields(DecodeConfig)} - {"context_window", "batch_tokens"}
        assert all(record[name] == getattr(decode, name) for name in names)


def test_the_loss_is_smoothed_only_in_train_mode(recipe):
    """Validation and the search for the best checkpoint compare the plain cross-entropy."""
    model, batch = build(replace(recipe.model, dropout=0.0)), collate_pairs([([5, 6], [7, 8])])
    plain = replace(recipe, train=replace(recipe.train, label_smoothing=0.0))
    smoothed, exact = (BatchLoss(model, Translation(each)) for each in (recipe, plain))
    assert smoothed(batch).item() != pytest.approx(exact(batch).item(), rel=1e-4)
    model.eval()
    assert smoothed(batch).item() == exact(batch).item()


def test_padding_does_not_reach_the_loss(recipe):
    model = build(recipe.model).eval()
    loss_module = BatchLoss(model, Translation(recipe))
    short, long = ([5, 6], [7, 8]), ([5] * 20, [9] * 20)
    with torch.no_grad():
        apart = [loss_module(collate_pairs([pair])).item() for pair in (short, long)]
        together = loss_module(collate_pairs([short, long])).item()
        assert together == pytest.approx(sum(apart), rel=1e-5)


def test_the_summary_names_each_setting_of_the_search_that_is_set():
    assert describe_search(DecodeConfig()) == "beam 5, length penalty 1"
    changed = DecodeConfig(beam=4, lenpen=0.6, stepwise=True, no_repeat_ngram_size=3, min_tokens=30)
    assert describe_search(changed) == (
        "beam 4, length penalty 0.6, stepwise true, min_tokens 30, no_repeat_ngram_size 3"
    )
