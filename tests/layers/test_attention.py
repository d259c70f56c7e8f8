"""Attention against its equation: values, gradients, masks, dropout, dtypes and memory."""

import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks

from dynconv.layers import CrossAttention, SelfAttention
from dynconv.layers.attention import attend

B, H, T, S, D = 2, 3, 6, 6, 4
POSITIONS = torch.arange(T)
ALLOWED = {
    "everything": None,
    "causal": POSITIONS <= POSITIONS[:, None],
    "window": (POSITIONS - POSITIONS[:, None]).abs() <= 1,
    "padding": (POSITIONS < torch.tensor([[6], [3]]))[:, None, None],  # (B, 1, 1, S)
    "padding and window": (POSITIONS < torch.tensor([[6], [4]]))[:, None, None]
    & ((POSITIONS - POSITIONS[:, None]).abs() <= 2),
}
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 0.02}


def textbook(query, key, value, allowed):
    """softmax(Q K^T / sqrt(d_k)) V through its (T, S) matrix: (B, H, T, d_k) to (B, T, C)."""
    scores = query @ key.transpose(2, 3) / query.shape[-1] ** 0.5
    if allowed is not None:
        scores = scores.masked_fill(~allowed, float("-inf"))
    return (scores.softmax(dim=-1) @ value).transpose(1, 2).flatten(2)


def heads(dtype=torch.float64, seed=0, positions=T):
    """Queries, keys and values that require gradients."""
    g = torch.Generator().manual_seed(seed)
    parts = torch.randn(3, B, H, positions, D, dtype=torch.float64, generator=g).to(dtype)
    return [part.requires_grad_() for part in parts.unbind()]


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("mask", ALLOWED)
def test_values_and_gradients_are_those_of_the_equation(mask, dtype):
    parts, allowed = heads(dtype), ALLOWED[mask]
    y = attend(*parts, allowed)
    assert y.dtype == dtype and y.shape == (B, T, H * D)
    exact = [part.detach().double().requires_grad_() for part in parts]
    expected = textbook(*exact, allowed)
    grad = torch.randn(y.shape, generator=torch.Generator().manual_seed(1)).to(dtype)
    theirs = torch.autograd.grad(expected, exact, grad.double())
    ours = torch.autograd.grad(y, parts, grad)
    tolerance = {"rtol": TOLERANCE[dtype], "atol": TOLERANCE[dtype]}
    for mine, other in zip((y, *ours), (expected, *theirs), strict=True):
        torch.testing.assert_close(mine.double(), other, **tolerance)


def test_causal_is_the_causal_mask():
    parts = heads()
    torch.testing.assert_close(
        attend(*parts, causal=True), attend(*parts, ALLOWED["causal"]), rtol=0, atol=1e-14
    )


def test_the_bias_of_the_keys_gets_no_gradient():
    """It cancels in the softmax, so its gradient would be rounding error."""
    own, cross = SelfAttention(8, 2), CrossAttention(8, 2)
    x = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(1))
    own(x).square().sum().backward()
    cross(x, cross.project(x)).square().sum().backward()
    query, key, value = own.in_proj.bias.grad.chunk(3)
    memory_key, memory_value = cross.memory_proj.bias.grad.chunk(2)
    assert not key.any() and not memory_key.any()
    assert query.all() and value.all() and memory_value.all()


def test_a_query_that_may_attend_to_nothing_gets_zeros():
    parts, allowed = heads(), ALLOWED["causal"].clone()
    allowed[2] = False
    y = attend(*parts, allowed)
    assert (y[:, 2] == 0).all() and (y[:, [0, 1, 3, 4, 5]] != 0).all()
    for grad in torch.autograd.grad(y.square().sum(), parts):
        assert grad.isfinite().all()
    layer = CrossAttention(12, 3)
    x, source = torch.randn(2, 1, 12), torch.randn(1, 4, 12)
    y = layer(x, layer.project(source), torch.ones(1, 4, dtype=torch.bool))
    torch.testing.assert_close(y, layer.out_proj(torch.zeros_like(x)))


def test_dropout_drops_weights_and_scales_the_others_up():
    torch.manual_seed(0)
    query, key, _ = heads(positions=50)
    one_hot = torch.eye(50, dtype=torch.float64).expand(B, H, 50, 50)  # the output: the weights
    weights, dropped = (
        attend(query, key, one_hot, dropout=p).unflatten(2, (H, 50)) for p in (0.0, 0.25)
    )
    torch.testing.assert_close(weights.sum(-1), torch.ones(B, 50, H, dtype=torch.float64))
    kept = dropped != 0
    assert kept.double().mean() == pytest.approx(0.75, abs=0.02)
    torch.testing.assert_close(dropped[kept], weights[kept] / 0.75)


@pytest.mark.parametrize("build", [SelfAttention, CrossAttention])
def test_layers_drop_weights_in_training_only(build):
    layer, x = build(12, 3, dropout=0.5), torch.randn(2, 30, 12)

    def run():
        return layer(x) if build is SelfAttention else layer(x, layer.project(x))

    assert not torch.equal(run(), run())
    layer.eval()
    assert torch.equal(run(), run())


def test_on_a_cpu_attention_is_computed_in_float32_under_autocast():
    """PyTorch's CPU kernel is slow in half precision; autocast must not select it."""
    narrow = heads(torch.bfloat16)
    with torch.autocast("cpu", torch.bfloat16):
        y = attend(*narrow, ALLOWED["window"])
    wide = attend(*(part.float() for part in narrow), ALLOWED["window"])
    assert torch.equal(y, wide.bfloat16())


def test_no_matrix_of_all_pairs_of_positions_is_kept():
    sizes, layer = [], SelfAttention(6, 2, causal=True)

    def pack(tensor):
        sizes.append(tensor.untyped_storage().nbytes())
        return tensor

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        layer(torch.randn(1, 2000, 6))
    assert max(sizes) < 2000 * 2000
