"""The ten normalisations of Wu et al. 2019, Table 6."""

import math
from typing import get_args

import pytest
import torch

from dynconv import ops
from dynconv.choices import Normalization
from dynconv.ops.normalize import NORMALIZATIONS

F64 = torch.float64
W = torch.tensor([3.0, -4.0, 0.5], dtype=F64)
E = [math.exp(w) for w in (3, -4, 0.5)]
L1, L2 = 7.5 + 1e-6, math.sqrt(25.25) + 1e-6  # 3 + 4 + 0.5 and 9 + 16 + 0.25
BY_HAND = {
    "softmax": [e / sum(E) for e in E],
    "none": [3, -4, 0.5],
    "sigmoid": [e / (1 + e) for e in E],
    "tanh": [(e * e - 1) / (e * e + 1) for e in E],
    "l1": [3 / L1, -4 / L1, 0.5 / L1],
    "l2": [3 / L2, -4 / L2, 0.5 / L2],
    "power2": [9, 16, 0.25],
    "abs": [3, 4, 0.5],
    "abs_l1": [3 / L1, 4 / L1, 0.5 / L1],
    "abs_l2": [3 / L2, 4 / L2, 0.5 / L2],
}


def test_table_6_has_ten_rows():
    names = list(get_args(Normalization))
    assert names == list(NORMALIZATIONS) == list(BY_HAND) and len(names) == 10


@pytest.mark.parametrize("kind", BY_HAND)
def test_each_normalisation_by_hand(kind):
    expected = torch.tensor(BY_HAND[kind], dtype=F64)
    torch.testing.assert_close(ops.normalize_kernel(W, kind), expected, rtol=1e-12, atol=0)


def test_default_is_softmax():
    assert torch.equal(ops.normalize_kernel(W), ops.normalize_kernel(W, "softmax"))


@pytest.mark.parametrize("kind", BY_HAND)
def test_each_kernel_is_normalised_by_itself(kind):
    weight = torch.randn(2, 5, 3, 7, dtype=F64)  # (B, T, H, K), what DynamicConv predicts
    alone = ops.normalize_kernel(weight[1, 2, 0], kind)
    torch.testing.assert_close(ops.normalize_kernel(weight, kind)[1, 2, 0], alone)


@pytest.mark.parametrize("kind", ["softmax", "abs_l1"])
def test_taps_are_shares(kind):
    weight = ops.normalize_kernel(torch.randn(4, 31, dtype=F64), kind)
    assert (weight >= 0).all()
    # Table 6 adds 1e-6 to a norm of some 25.
    torch.testing.assert_close(weight.sum(-1), torch.ones(4, dtype=F64), rtol=0, atol=1e-6)


@pytest.mark.parametrize(("kind", "order"), [("l1", 1), ("l2", 2), ("abs_l1", 1), ("abs_l2", 2)])
def test_each_normalisation_makes_its_norm_one(kind, order):
    weight = ops.normalize_kernel(torch.randn(4, 31, dtype=F64), kind)
    norms = weight.abs().pow(order).sum(-1) ** (1 / order)
    torch.testing.assert_close(norms, torch.ones(4, dtype=F64), rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", BY_HAND)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, F64], ids=str)
def test_shape_and_dtype_stay(kind, dtype):
    out = ops.normalize_kernel(W.to(dtype).expand(2, 4, 3), kind)
    assert out.shape == (2, 4, 3) and out.dtype == dtype
    # Norm, sum and quotient are each rounded to dtype.
    expected = torch.tensor(BY_HAND[kind], dtype=F64).expand(2, 4, 3)
    torch.testing.assert_close(out.double(), expected, rtol=4 * torch.finfo(dtype).eps, atol=1e-6)


@pytest.mark.parametrize("kind", BY_HAND)
def test_gradients_are_those_of_finite_differences(kind):
    torch.manual_seed(0)
    weight = torch.randn(2, 3, 5, dtype=F64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda w: ops.normalize_kernel(w, kind), weight)


@pytest.mark.parametrize("kind", BY_HAND)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, F64], ids=str)
def test_kernel_of_zeros_is_finite(kind, dtype):
    weight = torch.zeros(2, 5, dtype=dtype, requires_grad=True)
    out = ops.normalize_kernel(weight, kind)
    constant = {"softmax": 1 / 5, "sigmoid": 1 / 2}.get(kind, 0.0)
    torch.testing.assert_close(out, torch.full_like(weight, constant))
    out.sum().backward()
    assert weight.grad.isfinite().all()


def test_small_half_precision_weights_keep_their_norm():
    # Squares of 1e-4 vanish in float16; eps is 6e-5 there, the norm 8e-4.
    weight = ops.normalize_kernel(torch.full((64,), 1e-4, dtype=torch.float16), "l2")
    assert weight.double().norm() == pytest.approx(8e-4 / (8e-4 + 2**-14), rel=0.01)


@pytest.mark.parametrize("kind", BY_HAND)
def test_it_compiles_into_one_graph(kind):
    torch.compiler.reset()  # ten kinds are more recompilations than one function is granted
    graph = torch.compile(ops.normalize_kernel, fullgraph=True, backend="eager")
    assert torch.equal(graph(W, kind), ops.normalize_kernel(W, kind))


def test_unknown_kind_lists_the_names():
    with pytest.raises(ValueError, match=f"no normalisation 'l3'.* {', '.join(BY_HAND)}$"):
        ops.normalize_kernel(W, "l3")


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.complex64], ids=str)
def test_weights_must_be_floating(dtype):
    with pytest.raises(TypeError, match=rf"weight is {dtype}: cast"):
        ops.normalize_kernel(W.to(dtype), "none")
