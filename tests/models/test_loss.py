"""The loss: by hand, against released code, and in chunks equal to that of all logits at once."""

import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from dynconv.config import ConvS2SConfig, ConvStackConfig, load_recipe
from dynconv.lab import ledger
from dynconv.lab.bench import loss
from dynconv.lab.bench.measure import peak_allocation
from dynconv.models import build
from dynconv.models import loss as module
from dynconv.models.loss import ChunkedLoss, label_smoothed_loss, projected_loss
from dynconv.tasks import task_of
from dynconv.text import collate_pairs
from dynconv.train.update import BatchLoss

N, C, V = 50, 8, 30


def whole_loss(hidden, output, target, smoothing):
    """The reference: all logits at once."""
    logits = F.linear(hidden, output.weight, output.bias)
    return label_smoothed_loss(logits, target, smoothing)


def training_loss(hidden, output, target, smoothing=0.0):
    """What training calls: all logits at once, or in chunks of at most MAX_LOGITS."""
    return projected_loss(hidden, target, output.weight, output.bias, smoothing)


def in_chunks(rows):
    """Return the loss in chunks of so many tokens."""

    def loss_of(hidden, output, target, smoothing):
        return ChunkedLoss.apply(hidden, output.weight, output.bias, target, smoothing, rows)

    return loss_of


def loss_and_gradients(loss_of, output, smoothing=0.1, dtype=None):
    """Return the loss, and the gradients of 0.3 times it: the backward pass must scale them."""
    torch.manual_seed(0)
    hidden, target = torch.randn(N, C, requires_grad=True), torch.randint(V, (N,))
    with torch.autocast("cpu", dtype, enabled=dtype is not None):
        loss = loss_of(hidden, output, target, smoothing)
    assert loss.dtype == torch.float32
    inputs = [hidden, *output.parameters()]
    return [loss.detach(), *torch.autograd.grad(loss * 0.3, inputs)]


def test_label_smoothing_by_hand():
    logits = torch.tensor([[0.0, 0.0, math.log(2.0)]])  # probabilities 1/4, 1/4, 1/2
    loss = label_smoothed_loss(logits, torch.tensor([2]), 0.1)
    expected = 0.9 * math.log(2) + 0.05 * math.log(4) * 2
    assert loss.item() == pytest.approx(expected)


def test_label_smoothing_equals_the_released_code(golden):
    _, meta, case = golden.case("label_smoothed_nll")
    logits = torch.tensor(case["logits"], requires_grad=True)
    target = torch.tensor(case["target"])
    real = target != meta["ignore_index"]
    loss = label_smoothed_loss(logits[real].double(), target[real], meta["epsilon"])
    loss.backward()
    # The loss itself is float32 by design.
    torch.testing.assert_close(loss.item(), float(case["loss"]), rtol=1e-6, atol=0)
    torch.testing.assert_close(logits.grad, torch.tensor(case["grad_logits"]), rtol=1e-5, atol=1e-7)


def test_chunks_allow_an_impossible_type():
    output = nn.Linear(C, V)
    with torch.no_grad():
        output.bias[0] = -math.inf
    hidden, target = torch.randn(N, C), torch.randint(1, V, (N,))
    whole = whole_loss(hidden, output, target, 0.0)
    torch.testing.assert_close(in_chunks(7)(hidden, output, target, 0.0), whole)


@pytest.mark.parametrize("dtype", [None, torch.bfloat16])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("rows", [1, 7, 25])
def test_chunks_give_the_loss_and_gradients_of_the_whole(rows, bias, smoothing, dtype):
    """Every number is a sum of at most 50 terms below 4. In another order its rounding errors,
    2^-24 each, add up to less than 1e-5; in bfloat16, terms and sums have errors of 2^-8."""
    output = nn.Linear(C, V, bias=bias)
    whole = loss_and_gradients(whole_loss, output, smoothing, dtype)
    chunked = loss_and_gradients(in_chunks(rows), output, smoothing, dtype)
    close = {"rtol": 1e-5, "atol": 1e-5} if dtype is None else {"rtol": 0.03, "atol": 0.03}
    for ours, expected in zip(chunked, whole, strict=True):
        torch.testing.assert_close(ours, expected, **close)


def test_one_chunk_is_the_whole_bit_for_bit():
    output = nn.Linear(C, V)
    both = (loss_and_gradients(way, output) for way in (training_loss, whole_loss))
    assert all(torch.equal(ours, expected) for ours, expected in zip(*both, strict=True))


def test_chunks_work_on_a_device_without_autocast():
    with torch.device("meta"):
        output, hidden, target = nn.Linear(C, V), torch.randn(N, C), torch.randint(V, (N,))
    assert in_chunks(7)(hidden, output, target, 0.1).shape == ()


@pytest.mark.parametrize("weight", [False, True], ids=["hidden", "hidden and weight"])
def test_a_second_derivative_is_right_or_refused(monkeypatch, weight):
    """It depends on the inputs which nodes of the graph PyTorch would compute."""
    output, target = nn.Linear(C, V), torch.randint(V, (N,))
    inputs = [torch.randn(N, C, requires_grad=True), *[output.weight][:weight]]

    def second(loss_of):
        loss = loss_of(inputs[0].tanh(), output, target, 0.1)
        gradients = torch.autograd.grad(loss, inputs, create_graph=True)
        return torch.autograd.grad(sum(g.square().sum() for g in gradients), inputs)

    torch.testing.assert_close(second(training_loss), second(whole_loss))
    monkeypatch.setattr(module, "MAX_LOGITS", 7 * V)
    with pytest.raises(NotImplementedError, match="no second derivative: raise MAX_LOGITS"):
        second(training_loss)


def test_the_loss_alone_needs_no_gradients():
    output, hidden, target = nn.Linear(C, V), torch.randn(N, C), torch.randint(V, (N,))
    with torch.inference_mode():
        expected = whole_loss(hidden, output, target, 0.1)
        torch.testing.assert_close(in_chunks(7)(hidden, output, target, 0.1), expected)


@pytest.mark.parametrize("architecture", ["seq2seq", "convs2s", "language-model"])
def test_every_model_without_adaptive_softmax_learns_from_chunks(recipe, monkeypatch, architecture):
    """Tied and weight-normalised outputs also get their gradients."""
    pairs = [([5, 6, 7], [8, 9]), ([5, 9], [7, 6, 5, 8])]
    batch = collate_pairs(pairs)
    if architecture == "convs2s":
        stack = ConvStackConfig(layers=1, channels=8, kernel_size=3)
        model = ConvS2SConfig(vocab_size=300, embedding=8, encoder=stack, decoder=stack)
        recipe = replace(recipe, model=model)
    elif architecture == "language-model":
        small = ["model.vocab_size=300", "model.channels=8", "model.ffn=8", "model.dropout=0"]
        recipe = load_recipe("austen-dynamic", small)
    torch.manual_seed(0)
    model = build(recipe.model)
    loss_of = BatchLoss(model, task_of(recipe))

    def gradients():
        model.zero_grad()
        torch.manual_seed(1)  # for dropout
        loss_of(batch).backward()
        return {name: p.grad for name, p in model.named_parameters()}

    whole = gradients()
    monkeypatch.setattr(module, "MAX_LOGITS", 2 * 300)
    for name, chunked in gradients().items():
        torch.testing.assert_close(chunked, whole[name], rtol=1e-4, atol=1e-5)


def test_chunks_need_the_memory_of_one_chunk_and_the_gradients():
    """At the peak there are three float32 numbers per logit, of all tokens or of one chunk: logits,
    log p, and their gradient, which one chunk leaves to the next. Chunks add the gradients of
    hidden, W and b, and a few indices and sums, less than 1 kB."""
    N, C, V, rows = 1024, 4, 1000, 64
    output, target = nn.Linear(C, V), torch.randint(V, (N,))
    hidden = torch.randn(N, C, requires_grad=True)

    def peak(loss_of):
        return peak_allocation(lambda: loss_of(hidden, output, target, 0.1).backward())

    assert peak(training_loss) >= 4 * 3 * N * V
    assert peak(in_chunks(rows)) < 4 * 3 * rows * V + 4 * (N * C + V * C + V) + 1000


def test_the_recorded_memory_is_that_of_the_sizes():
    """As the test above says; recorded with the sizes of a recipe."""
    found = ledger.read("loss-memory")["numbers"]
    N, C, V, rows = (found[name] for name in ("tokens", "channels", "types", "rows_of_a_chunk"))
    assert rows * V == module.MAX_LOGITS and found["whole"] >= 4 * 3 * N * V
    assert found["chunked"] < 4 * 3 * rows * V + 4 * (N * C + V * C) + 1000 + 4 * V
    small = loss.measure_loss(64, 8, 300, 16)
    assert small["chunked"] < small["whole"]


def test_many_logits_are_computed_in_chunks(monkeypatch):
    """`projected_loss` never computes more than MAX_LOGITS at once, but at least one token's."""
    shapes, linear = [], F.linear

    def recording(*arguments):
        shapes.append(linear(*arguments).shape)
        return linear(*arguments)

    monkeypatch.setattr(F, "linear", recording)
    output, hidden, target = nn.Linear(C, V), torch.randn(N, C), torch.randint(V, (N,))
    for most, largest in ((N * V, N), (7 * V + 1, 7), (1, 1)):
        shapes.clear()
        monkeypatch.setattr(module, "MAX_LOGITS", most)
        training_loss(hidden, output, target)
        assert max(shape[0] for shape in shapes) == largest
        assert sum(shape[0] for shape in shapes) == N
