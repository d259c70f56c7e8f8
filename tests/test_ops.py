"""Every implementation of every operator means what its oracle means, in values and gradients."""

import json
from functools import partial

import numpy as np
import pytest
import torch

from dynconv import ops

F64 = torch.float64
CONVS = [
    (name, impl)
    for name in ("depthwise_conv", "light_conv", "dynamic_conv")
    for impl in ops.implementations(name)
]


def kernels(name: str, B: int, T: int, C: int, H: int, K: int) -> torch.Tensor:
    shape = {"depthwise_conv": (C, K), "light_conv": (H, K), "dynamic_conv": (B, T, H, K)}[name]
    return torch.randn(shape, dtype=F64, requires_grad=True)


def same(mine, oracle, inputs):
    out, expected = mine(*inputs), oracle(*inputs)
    torch.testing.assert_close(out, expected, rtol=1e-9, atol=1e-12)
    g = torch.randn_like(out)
    for a, b in zip(
        torch.autograd.grad(out, inputs, g), torch.autograd.grad(expected, inputs, g), strict=True
    ):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("T", [1, 4, 5, 6, 37])
@pytest.mark.parametrize("H", [1, 3, 6])
@pytest.mark.parametrize("pad_left", [0, 2, 4])
@pytest.mark.parametrize(("name", "impl"), CONVS)
def test_convolution_equals_its_loop(name, impl, T, H, pad_left):
    torch.manual_seed(T)
    x = torch.randn(T, 2, 6, dtype=F64, requires_grad=True).transpose(0, 1)  # strides as they come
    op = partial(getattr(ops, name), pad_left=pad_left)
    same(partial(op, impl=impl), partial(op, impl="loop"), (x, kernels(name, 2, T, 6, H, 5)))


@pytest.mark.parametrize("impl", ops.implementations("talk_conv"))
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("T", [1, 4, 5, 23])
def test_talk_equals_its_loop(impl, causal, T):
    torch.manual_seed(T)
    x = torch.randn(2, T, 6, dtype=F64, requires_grad=True)
    offsets = [torch.rand(2, T, 3, dtype=F64, requires_grad=True) for _ in range(2 - causal)]
    reach = {"max_left": 4, "max_right": 0 if causal else 3}

    def op(impl, x, left, right=None):
        return ops.talk_conv(x, left, right, impl=impl, **reach)

    same(partial(op, impl), partial(op, "loop"), (x, *offsets))


@pytest.mark.parametrize("impl", ops.implementations("cumulative_mean"))
def test_cumulative_mean(impl):
    x = torch.randn(2, 9, 4, dtype=F64, requires_grad=True)
    same(partial(ops.cumulative_mean, impl=impl), partial(ops.cumulative_mean, impl="loop"), (x,))
    half = torch.ones(1, 3000, 1, dtype=torch.bfloat16)
    assert impl == "loop" or (ops.cumulative_mean(half, impl=impl) == 1).all()


@pytest.mark.parametrize(("name", "impl"), CONVS)
def test_causal_convolution_never_sees_the_future(name, impl):
    x = torch.randn(1, 9, 6, dtype=F64)
    later = x.clone()
    later[:, 5:] += 1
    op = partial(getattr(ops, name), weight=kernels(name, 1, 9, 6, 3, 5), pad_left=4, impl=impl)
    torch.testing.assert_close(op(x)[:, :5], op(later)[:, :5], rtol=0, atol=0)
    assert not torch.equal(op(x)[:, 5:], op(later)[:, 5:])


def test_head_of_a_channel_is_contiguous():
    weight = torch.tensor([[1.0], [2.0]])
    out = ops.light_conv(torch.ones(1, 1, 4), weight, pad_left=0)
    assert out.flatten().tolist() == [1, 1, 2, 2]


def test_softmax_rows_sum_to_one():
    weight = ops.normalize_kernel(torch.randn(3, 7))
    torch.testing.assert_close(weight.sum(-1), torch.ones(3))
    with pytest.raises(ValueError, match="'l3'"):
        ops.normalize_kernel(weight, "l3")


X = torch.zeros(2, 4, 6)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: ops.light_conv(X, torch.zeros(4, 3), pad_left=1), "4 heads do not divide 6"),
        (lambda: ops.light_conv(X, torch.zeros(3, 3), pad_left=3), "pad_left 3 .* 2"),
        (lambda: ops.light_conv(X, torch.zeros(3, 3), pad_left=1, impl="fast"), "'fast'"),
        (lambda: ops.depthwise_conv(X, torch.zeros(3, 3), pad_left=1), "3 kernels for 6"),
        (lambda: ops.dynamic_conv(X, torch.zeros(3, 3), pad_left=1), "does not fit"),
        (lambda: ops.dynamic_conv(X, torch.zeros(2, 4, 4, 3), pad_left=1), "4 heads"),
        (lambda: ops.talk_conv(X, X[..., :3], None, max_left=3, max_right=1), "max_right, here 1"),
        (lambda: ops.talk_conv(X, X[..., :3], None, max_left=-1, max_right=0), "max_left -1"),
        (lambda: ops.talk_conv(X, X[:1, :, :3], None, max_left=1, max_right=0), "left .* fit"),
        (lambda: ops.implementations("conv"), "'conv'"),
    ],
)
def test_bad_input_is_named(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def tbc(array):  # the known answers are (time, batch, channel)
    return torch.from_numpy(array).transpose(0, 1)


def test_known_answers_of_light_and_dynamic_conv(golden):
    """Values and gradients of the released implementation, kernels wider than the sentence too."""
    files = sorted(golden.glob("lightconv_T*.npz")) + sorted(golden.glob("dynamicconv_op_*.npz"))
    assert len(files) > 80
    for file in files:
        z = np.load(file)
        meta = json.loads(str(z["meta"]))
        dynamic = "filters" in z
        weight = tbc(z["filters"]) if dynamic else torch.from_numpy(z["weight_normalized"])
        x = tbc(z["x"]).requires_grad_()
        op = ops.dynamic_conv if dynamic else ops.light_conv
        out = op(x, weight, pad_left=meta["P"] if "P" in meta else meta["padding_l"])
        out = out + torch.from_numpy(z["bias"]) if "bias" in z else out
        torch.testing.assert_close(out, tbc(z["out"]), rtol=1e-9, atol=1e-11, msg=file.name)
        (grad,) = torch.autograd.grad(out, x, tbc(z["grad_out"]))
        torch.testing.assert_close(grad, tbc(z["grad_x"]), rtol=1e-9, atol=1e-11, msg=file.name)
