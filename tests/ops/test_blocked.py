"""Implementations that save only their inputs: several blocks, autocast and memory."""

import pytest
import torch

from dynconv import ops
from dynconv.ops import depthwise, dynamicconv

F64 = torch.float64
LEAN = [
    ("dynamic_conv", "taps"),
    ("dynamic_conv", "blocked"),
    ("light_conv", "blocked"),
    ("light_conv", "channels_last"),
    ("depthwise_conv", "channels_last"),
    ("talk_conv", "blocked"),
    ("cumulative_mean", "blocked"),
]


def problem(name: str, T: int, K: int = 7):
    """A function of (impl, *inputs) and its inputs: C = 6 channels, 3 heads."""
    x = torch.randn(2, T, 6, dtype=F64, requires_grad=True)
    if name == "cumulative_mean":
        return lambda impl, x: ops.cumulative_mean(x, impl=impl), (x,)
    if name == "talk_conv":
        offsets = (torch.rand(2, T, 3, dtype=F64, requires_grad=True) for _ in range(2))
        reach = {"max_left": K - 2, "max_right": 1}
        return lambda impl, *inputs: ops.talk_conv(*inputs, impl=impl, **reach), (x, *offsets)
    shape = {"depthwise_conv": (6, K), "light_conv": (3, K), "dynamic_conv": (2, T, 3, K)}[name]
    weight = torch.randn(shape, dtype=F64, requires_grad=True)
    return lambda impl, *inputs: getattr(ops, name)(*inputs, pad_left=K - 2, impl=impl), (x, weight)


@pytest.mark.parametrize("T", [32, 33, 70])
@pytest.mark.parametrize(("name", "impl"), LEAN)
def test_several_blocks_equal_the_loop(name, impl, T, monkeypatch):
    for module in (depthwise, dynamicconv):  # several parts of a cache's size, too
        monkeypatch.setattr(module, "positions_in_cache", lambda x: 9)
    op, inputs = problem(name, T, K=41)
    out, expected = op(impl, *inputs), op("loop", *inputs)
    torch.testing.assert_close(out, expected, rtol=1e-9, atol=1e-12)
    g = torch.ones(1, 1, 6, dtype=F64).expand(out.shape)  # as the gradient of a sum comes
    for a, b in zip(
        torch.autograd.grad(out, inputs, g), torch.autograd.grad(expected, inputs, g), strict=True
    ):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize(("name", "impl"), LEAN)
def test_autocast_changes_no_bit(name, impl):
    """Not in the result, and not in the gradients."""
    op, inputs = problem(name, T=40)
    inputs = [z.detach().float().requires_grad_() for z in inputs]
    results = []
    for enabled in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            out = op(impl, *inputs)
            results.append((out, *torch.autograd.grad(out, inputs, torch.ones_like(out))))
    assert all(map(torch.equal, *results))


@pytest.mark.parametrize(("name", "impl"), LEAN)
def test_nothing_but_the_inputs_is_kept(name, impl):
    op, inputs = problem(name, T=40)
    kept = {}
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.setdefault(id(t), t), lambda t: t):
        op(impl, *inputs)
    own = {z.data_ptr() for z in inputs}
    assert sum(t.numel() for t in kept.values() if t.data_ptr() not in own) <= 40  # T counts


@pytest.mark.parametrize("impl", ["band", "table", "blocked"])
def test_an_offset_that_is_nan_affects_only_its_own_position(impl):
    x, offsets = torch.randn(1, 40, 2), torch.rand(1, 40, 1)
    offsets[0, 5] = torch.nan
    out = ops.talk_conv(x, offsets, offsets, max_left=4, max_right=3, impl=impl)
    assert out.isnan().any(-1).nonzero().tolist() == [[0, 5]]


@pytest.mark.parametrize("mean", [0, 1])
def test_talk_is_as_exact_at_the_end_of_a_long_text(mean):
    x, left, right = torch.randn(1, 50_000, 2) + mean, torch.rand(1, 50_000, 1), None
    op = lambda *z: ops.talk_conv(*z, right, max_left=30, max_right=0, impl="blocked")  # noqa: E731
    exact = op(x.double(), left.double())
    assert (op(x, left) - exact).norm() <= 5e-7 * exact.norm()
    rounded = op(x.bfloat16(), left) - op(x.bfloat16().double(), left.double())
    assert rounded.norm() <= 2**-9 * exact.norm()  # half a unit in the last place of bfloat16
