"""`dynconv estimate`: the memory it predicts is what PyTorch allocates, and its sums are right."""

from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from conftest import sized_stack

from dynconv.config import Recipe, load_recipe
from dynconv.errors import UserError
from dynconv.kernels.cpu import build as cpu
from dynconv.lab import estimate
from dynconv.lab.bench import measure
from dynconv.lab.epoch import count_epoch
from dynconv.lab.estimate import (
    AllocationTracker,
    BatchCost,
    BatchShape,
    estimate_costs,
    format_hours,
    peak_bytes,
    propose_batch,
)
from dynconv.lab.gpu_memory import gpu_memory
from dynconv.models import build, loss
from dynconv.models.activation_checkpointing import set_activation_checkpointing
from dynconv.tasks import Translation
from dynconv.text import Batch, Vocabulary, batch_by_length, encode_corpus, load_parallel
from dynconv.train import data
from dynconv.train.update import BatchLoss

MEMORY = 0.1
"""gigabytes of a GPU; the more it has, the longer a batch to fill it takes to be found"""


def rows(report: str) -> dict[str, str]:
    """The report's lines by their names."""
    assert all(len(line) <= 100 for line in report.splitlines())
    return {line[:15].strip(): line[15:] for line in report.splitlines()}


def with_mixer(recipe: Recipe, mixer: str, precision: str) -> Recipe:
    """Two layers on each side, with all four kinds of dropout, a vocabulary that does not hide
    them, and this mixer."""
    stack = sized_stack(2, mixer, None if mixer == "attention" else (3, 7))
    rates = dict.fromkeys(("dropout", "attention_dropout", "weight_dropout", "input_dropout"), 0.1)
    model = replace(recipe.model, vocab_size=100, encoder=stack, decoder=stack, **rates)
    return replace(recipe, model=model, train=replace(recipe.train, precision=precision))


def allocated(recipe: Recipe, shape: BatchShape) -> int:
    """The bytes that one batch really takes, by the allocator's account.

    Without oneDNN, because on some processors it makes PyTorch allocate more.
    """
    model = build(recipe.model)
    set_activation_checkpointing(model, recipe.train.checkpoint_activations)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    loss_module = BatchLoss(model, Translation(recipe), recipe.train.precision)
    ids = torch.randint(100, shape)
    targets = torch.randint(100, (ids.numel(),))
    batch = Batch(ids, ids > 100, ids, targets, torch.arange(ids.numel()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.backends.mkldnn, "enabled", False)
        return measure.peak_allocation(lambda: loss_module(batch).backward())


ALL = [(m, p) for m in ("dynamic", "light", "attention", "talk") for p in ("float32", "bfloat16")]
LIKE_GPU = [(gpu_memory, *each) for each in ALL]
AS_IT_IS = [(nullcontext, "dynamic", "float32"), (nullcontext, "attention", "bfloat16")]


@pytest.mark.parametrize(("like", "mixer", "precision"), LIKE_GPU + AS_IT_IS)
def test_memory_is_what_pytorch_allocates(recipe, monkeypatch, like, mixer, precision):
    recipe = with_mixer(recipe, mixer, precision)
    monkeypatch.setattr(estimate, "gpu_memory", like)
    shapes = [BatchShape(40, 10), BatchShape(4, 100)]
    if (mixer, precision) == ("dynamic", "float32"):
        shapes.append(BatchShape(1, 5))  # the new gradients are more than the activations
    for shape in shapes:
        with like(precision):
            real = allocated(recipe, shape)
        # An operator may allocate scratch space that its version without numbers does not.
        assert BatchCost(recipe, shape).bytes == pytest.approx(real, rel=0.01), shape


def test_without_c_kernels(recipe, monkeypatch):
    """PyTorch's ways run, and TaLK's asks for a number."""
    monkeypatch.setattr(cpu, "why_unavailable", lambda dtype: "no compiler")
    test_memory_is_what_pytorch_allocates(recipe, monkeypatch, gpu_memory, "talk", "bfloat16")


def test_float16_costs_what_bfloat16_costs():
    """On a GPU both have kernels for the convolutions, on a CPU only bfloat16 has."""
    name, shape = "wmt16-en-de-dynamic", BatchShape(119, 30)
    half, brain = (
        BatchCost(load_recipe(name, [f"train.precision={precision}"]), shape)
        for precision in ("float16", "bfloat16")
    )
    assert (half.bytes, half.flops) == (brain.bytes, brain.flops)


def test_logits_are_counted(recipe, monkeypatch):
    """All at once, or chunk by chunk."""
    recipe = with_mixer(recipe, "dynamic", "bfloat16")
    larger = replace(recipe, model=replace(recipe.model, vocab_size=4000))
    shape = BatchShape(4, 100)
    larger_bytes = BatchCost(larger, shape).bytes
    more = larger_bytes - BatchCost(recipe, shape).bytes
    assert more > 400 * 3900 * 4 * 2  # in float32, and their gradient
    with gpu_memory("bfloat16"):
        assert larger_bytes == pytest.approx(allocated(larger, shape), rel=0.01)
    monkeypatch.setattr(loss, "MAX_LOGITS", 50 * 4000)
    chunked_bytes = BatchCost(larger, shape).bytes
    assert chunked_bytes < larger_bytes - 350 * 4000 * 4 * 2
    with gpu_memory("bfloat16"):
        assert chunked_bytes == pytest.approx(allocated(larger, shape), rel=0.01)


@pytest.mark.parametrize("mixer", ["dynamic", "talk"])
def test_recomputed_blocks_are_counted(recipe, mixer):
    """Their memory, and the FLOPs of their second forward pass.

    The batch is large, because on a CPU each block also keeps 5 kB to draw its numbers again.
    """
    kept = with_mixer(recipe, mixer, "bfloat16")
    recomputed = replace(kept, train=replace(kept.train, checkpoint_activations=True))
    shape = BatchShape(40, 100)
    plain, ours = BatchCost(kept, shape), BatchCost(recomputed, shape)
    with gpu_memory("bfloat16"):
        assert ours.bytes == pytest.approx(allocated(recomputed, shape), rel=0.01)
    assert ours.bytes < plain.bytes
    assert plain.flops < ours.flops < plain.flops * 4 / 3


def test_storages_count_once_and_until_they_end():
    x = torch.zeros(1000)
    with AllocationTracker() as live:
        y = x.exp()
        assert live.held == x.nbytes
        y = [y.view(10, 100), y.exp()]
        assert live.held == live.peak == 2 * x.nbytes
        y.pop()
        assert live.held == x.nbytes
        y.pop()
        assert (live.held, live.peak) == (0, 2 * x.nbytes)


def test_dropout_and_softmax_keep_what_a_gpu_keeps():
    x = torch.randn(1000, requires_grad=True)
    with gpu_memory("float32"), measure.record_saved_tensors([x]) as kept:
        y = F.dropout(x, 0.1)
    assert sum(kept.values()) == 1000
    torch.testing.assert_close(y[y != 0], x[y != 0] / 0.9)
    with gpu_memory("bfloat16"), torch.autocast("cpu", torch.bfloat16):
        assert x.bfloat16().softmax(dim=0).dtype == torch.float32
        assert F.dropout(x, 0.0) is x
    with gpu_memory("float32"):
        assert x.bfloat16().softmax(dim=0).dtype == torch.bfloat16


def test_flops_are_those_of_all_matrix_products(recipe):
    cost = BatchCost(recipe, BatchShape(3, 7))
    matrices = sum(p.numel() for p in build(recipe.model).parameters() if p.dim() == 2)
    attention = 2 * 3 * 7 * 7 * recipe.model.channels  # scores and sums, in one decoder layer
    # Forward, and backward twice: by the weight and by the input; two to multiply and add.
    assert cost.flops == 3 * 2 * (3 * 7 * matrices + attention)


def test_wmt16_has_the_parameters_of_table_1(monkeypatch):
    recipe = load_recipe("wmt16-en-de-dynamic")
    cost = BatchCost(recipe, BatchShape(119, 30))
    assert cost.parameters == 213_237_760
    in_bytes, flops = cost.bytes, cost.flops  # counted before the logits become one piece
    monkeypatch.setattr(loss, "MAX_LOGITS", 119 * 30 * 32768)
    whole = BatchCost(recipe, BatchShape(119, 30))
    assert in_bytes < whole.bytes - 119 * 30 * 32768 * 4 and flops == whole.flops


def test_a_language_model_with_an_adaptive_softmax():
    """Only some of the tokens meet the tails of the vocabulary."""
    recipe = load_recipe("wikitext-103-talk")
    whole = load_recipe("wikitext-103-talk", ["model.cutoffs=[]", "model.softmax_dropout=0"])
    banded, plain = (BatchCost(each, BatchShape(2, 512)) for each in (recipe, whole))
    V = recipe.model.vocab_size
    assert banded.bytes < plain.bytes - 2 * 512 * V * 4 < plain.bytes
    assert "0.97 GB, the velocity" in estimate_costs(recipe, 8, 8.0, None)


def test_batches_and_epochs_are_those_of_the_stream(recipe, tmp_path):
    recipe = replace(recipe, train=replace(recipe.train, accumulate=2, updates=100))
    name = recipe.data.corpus
    text = load_parallel(name, "de", "en", "train")
    bpe = Vocabulary.learn([*text.source, *text.target], 300)
    lengths = np.array(
        [[len(ids) + 1 for ids in pair] for pair in zip(*map(bpe.encode, text), strict=True)]
    )
    batches, tokens = len(batch_by_length(lengths, 400)), int(lengths[:, 1].sum())

    report = rows(estimate_costs(recipe, 3, MEMORY, 1000.0))
    assert report["one update"].startswith("2,400 tokens")
    assert report["epoch"] == (
        f"{batches / 6:,.1f} updates: 400 pairs in {batches} batches; "
        f"100 updates are {600 / batches:,.1f} epochs"
    )
    batch = tokens / batches
    assert report["target tokens"] == f"{batch:,.0f} per batch, {6 * batch:,.0f} per update (mean)"
    assert report["hours"].startswith(f"{600 * batch / 3000 / 3600:,.1f} at 1,000 ")
    usual, longest = round(lengths.max(1).mean()), lengths.max()
    assert f"{400 // usual} x {usual} tokens" in report["activations"]
    assert f"{400 // longest} x {longest} tokens" in report["activations"]

    encode_corpus(name, "de", "en", 300, tmp_path / "prepared")
    prepared = replace(recipe, data=replace(recipe.data, corpus=str(tmp_path / "prepared")))
    assert rows(estimate_costs(prepared, 3, MEMORY, 1000.0)) == report


def test_too_long_pairs_are_left_out(recipe, tmp_path):
    corpus = encode_corpus(recipe.data.corpus, "de", "en", 300, tmp_path / "prepared")
    short = replace(recipe, data=replace(recipe.data, max_example_tokens=20))
    text = count_epoch(corpus, short)
    assert 0 < text.examples < 400 and text.longest <= 20 < count_epoch(corpus, recipe).longest


def test_of_several_pools_one_is_counted(recipe, tmp_path, monkeypatch):
    corpus = encode_corpus(recipe.data.corpus, "de", "en", 300, tmp_path / "prepared")
    exact = count_epoch(corpus, recipe)
    monkeypatch.setattr(data, "EXAMPLES_PER_POOL", 110)
    monkeypatch.setattr(data, "EXAMPLES_PER_READ", 10)
    about = count_epoch(corpus, recipe)
    assert exact.exact and not about.exact
    assert about.examples == exact.examples == 400
    # Four sorted pools cannot pad less than one; their last batches are not full.
    assert exact.batches <= about.batches <= exact.batches + 8
    assert about.target_tokens == pytest.approx(exact.target_tokens, rel=0.1)


def test_what_is_not_known_without_the_corpus(recipe):
    away = replace(recipe, data=replace(recipe.data, corpus="prepared/wmt16-en-de"))
    report = rows(estimate_costs(away, 1, MEMORY, 1000.0))
    for name in ("target tokens", "epoch", "hours"):
        assert report[name].startswith("not known: the corpus is not here")
    assert report["parameters"] == f"{sum(p.numel() for p in build(recipe.model).parameters()):,}"
    assert "13 x 30 tokens" in report["activations"] and "1 x 256 tokens" in report["activations"]


def test_a_corpus_that_is_here_and_does_not_fit_the_recipe_is_an_error(recipe, tmp_path):
    encode_corpus(recipe.data.corpus, "de", "en", 300, tmp_path / "prepared")
    other = replace(recipe.model, vocab_size=310)
    there = replace(recipe.data, corpus=str(tmp_path / "prepared"))
    with pytest.raises(UserError, match="with model.vocab_size=300, but the recipe has 310"):
        estimate_costs(replace(recipe, data=there, model=other), 1, MEMORY, None)


def test_the_largest_batch_fits_and_a_larger_one_does_not(recipe):
    lengths = (10, 150)
    used = peak_bytes(recipe, 400, lengths)
    for room in (1.7 * used, 20.3 * used):  # in the first the straight line hits too high
        text = propose_batch(recipe, lengths, room, used)
        size = int(text.removeprefix("train.batch_tokens=").removesuffix(" fits, about"))
        assert size % 64 == 0
        # Whole sentences only: what is larger may be one of 150 away.
        assert peak_bytes(recipe, size, lengths) <= room
        assert peak_bytes(recipe, size + 64 + 150, lengths) > room
    assert "none fits" in propose_batch(recipe, lengths, used / 4, used)


def test_a_batch_fits_or_does_not(recipe):
    away = replace(recipe, data=replace(recipe.data, corpus="prepared/wmt16-en-de"))
    parameters = BatchCost(away, BatchShape(13, 30)).parameters
    needed = 16 * parameters + max(
        BatchCost(away, BatchShape(*s)).bytes for s in ((13, 30), (1, 256))
    )
    assert ": fits into" in estimate_costs(away, 1, needed / 1e9 / 0.89, None)
    assert ": DOES NOT FIT into" in estimate_costs(away, 1, needed / 1e9 / 0.91, None)


def test_hours_follow_from_the_speed():
    assert format_hours(3.6e6 * 5, 4, 500.0).startswith("2.5 at 500 target tokens/s per GPU")
    assert format_hours(1.0, 1, None).startswith("not measured: give --tokens-per-s")
