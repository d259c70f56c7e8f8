"""The C kernels: each dtype, tile edges, threads, large tensors, and reads out of bounds."""

import os
import subprocess
import sys

import pytest
import torch
from conftest import ROOT
from helpers.operators import (
    CONVS,
    F32,
    F64,
    HALF,
    assert_exact,
    call,
    case,
    expected,
    graph,
    operators_with,
)
from torch.autograd import gradgradcheck

from dynconv import ops
from dynconv.kernels.cpu import build as cpu

if cpu.why_unavailable():
    pytest.skip(cpu.why_unavailable(), allow_module_level=True)

OPERATORS = operators_with("cpu")


def compare(name: str, dtype, B: int, T: int, H: int, R: int, K: int) -> None:
    torch.manual_seed(T)
    inputs = case(name, B, T, H, R, K, dtype)
    g = torch.randn(B, T, H * R).to(dtype)
    actual = graph(name, "cpu", inputs, K, g)
    assert [a.dtype for a in actual[1:]] == [z.dtype for z in inputs]
    assert_exact(actual, expected(name, inputs, K, g), f"{name} {B=} {T=} {H=} {R=} {K=}")


@pytest.mark.parametrize("R", [1, 2, 5, 8, 16, 17, 40, 64, 100])
@pytest.mark.parametrize("dtype", [F32, F64, HALF], ids=str)
@pytest.mark.parametrize("name", OPERATORS)
def test_as_exact_as_the_dtype_at_tile_edges(name, dtype, R):
    for T in (63, 64, 65, 127, 128, 129, 300):
        compare(name, dtype, 2, T, 3, R, 7)


@pytest.mark.parametrize("K", [1, 2, 4, 8, 15, 16, 17, 31, 33, 63, 101, 200])
@pytest.mark.parametrize("name", OPERATORS[:-1])
def test_any_width_even_wider_than_the_sentence(name, K):
    for dtype in (F32, HALF):
        for T in (1, 5, 70):
            compare(name, dtype, 2, T, 2, 12, K)


@pytest.mark.parametrize("name", OPERATORS)
def test_tensors_larger_than_the_caches(name):
    """Results of 16 MiB or more bypass the caches, if heads consist of whole vectors."""
    compare(name, F32, 1, 4200, 16, 64, 3)
    if name == "light_conv":  # vectors that are not whole
        compare(name, F32, 1, 4200, 12, 85, 3)
    if name == "dynamic_conv":  # in bfloat16 rows are only prefetched
        compare(name, HALF, 1, 8400, 16, 64, 3)


@pytest.mark.parametrize("dtype", [F32, F64, HALF], ids=str)
@pytest.mark.parametrize("R", [4, 64])
@pytest.mark.parametrize("name", OPERATORS)
def test_threads_change_no_bit(name, R, dtype):
    """Neither their number nor their order matters; B T C K is too large for one thread."""
    before = torch.get_num_threads()
    try:
        for B in (1, 5):
            inputs = case(name, B, 1300 // B, 256 // R, R, 7, dtype)
            g = torch.randn_like(inputs[0])
            torch.set_num_threads(1)
            one = graph(name, "cpu", inputs, 7, g)
            torch.set_num_threads(2)
            for _ in range(2):
                two = graph(name, "cpu", inputs, 7, g)
                assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("name", OPERATORS)
def test_nothing_but_the_inputs_is_kept(name):
    inputs = [z.requires_grad_() for z in case(name, 2, 40, 3, 4, 7)]
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(kept.append, lambda _: None):
        call(name, "cpu", inputs, 7)
    own = {z.data_ptr(): z.nbytes for z in inputs}
    assert all(own.get(z.data_ptr()) == z.nbytes for z in kept)
    assert len(kept) == {"cumulative_mean": 0, "talk_conv": 3}.get(name, 2)


@pytest.mark.parametrize("R", [2, 9])
@pytest.mark.parametrize("name", [*CONVS, "cumulative_mean"])
def test_second_derivatives_of_the_c_kernels_are_right(name, R):
    inputs = [z.requires_grad_() for z in case(name, 2, 4, 2, R, 3)]
    assert gradgradcheck(lambda *inputs: call(name, "cpu", inputs, 3), inputs)


def test_talk_has_no_second_derivative_and_says_so():
    x, *offsets = (z.requires_grad_() for z in case("talk_conv", 1, 4, 1, 2, 3))
    out = call("talk_conv", "cpu", [x, *offsets], 3)
    (dx,) = torch.autograd.grad(out.square().sum(), x, create_graph=True)
    with pytest.raises(NotImplementedError, match="no second derivative: use impl='band'"):
        dx.sum().backward()


@pytest.mark.parametrize("mean", [0, 1])
def test_talk_is_as_exact_at_the_end_of_a_long_text(mean):
    K = 63
    inputs = case("talk_conv", 1, 50_000, 1, 2, K, F32, mean)
    inputs[1:] = [z * 0.9 for z in inputs[1:]]
    g = torch.randn(1, 50_000, 2) + mean
    reference = graph("talk_conv", "blocked", [z.double() for z in inputs], K, g.double())
    actual = graph("talk_conv", "cpu", inputs, K, g)
    for part in (slice(0, 1000), slice(-1000, None), slice(None)):
        # An offset's gradient is a token times g, and rounding may move its edge past a token.
        for a, b in zip(actual[:2], reference[:2], strict=True):
            assert (a[:, part] - b[:, part]).norm() <= 5e-7 * b[:, part].norm()
    for half in ([inputs[0].to(HALF), *inputs[1:]], [z.to(HALF) for z in inputs]):
        exact = call("talk_conv", "blocked", [z.double() for z in half], K)
        assert_exact((call("talk_conv", "cpu", half, K),), (exact,), "bfloat16")


SPECIAL = [0.0, 1.0, 0.25, 0.5, 0.75, 0.1, 0.9, 1.05, 1.25, 2.5, 1e30]


@pytest.mark.parametrize("impl", ["cpu", "blocked"])
def test_talk_offsets_of_all_kinds(impl):
    """Whole distances, 0, 1, and above 1, as dropout's 1 / (1 - p) leaves them."""
    torch.manual_seed(0)
    B, T, H, R, L = 2, 90, 3, 5, 4
    x, g = torch.randn(2, B, T, H * R, dtype=F64)
    draw = torch.randint(len(SPECIAL), (2, B, T, H))
    left, right = torch.tensor(SPECIAL, dtype=F64)[draw]
    inputs = [z.requires_grad_() for z in (x, left, right)]
    out = ops.talk_conv(*inputs, max_left=L, max_right=L, impl=impl)
    expected = ops.talk_conv(*inputs, max_left=L, max_right=L, impl="loop")
    torch.testing.assert_close(out, expected, rtol=1e-9, atol=1e-12)
    dx, dleft, dright = torch.autograd.grad(out, inputs, g)
    (loop_dx,) = torch.autograd.grad(expected, x, g)
    torch.testing.assert_close(dx, loop_dx, rtol=1e-9, atol=1e-12)
    for grad, offset, sign in ((dleft, left, -1), (dright, right, 1)):
        for b, t, h in torch.cartesian_prod(*map(torch.arange, (B, T, H))).tolist():
            distance = offset[b, t, h].item() * L
            limit = t if sign < 0 else T - 1 - t
            c, value = slice(h * R, h * R + R), 0.0
            if distance % 1 and distance < limit:  # it moves, and cuts through a token
                cut = t + sign * (int(distance) + 1)
                value = (g[b, t, c] @ x[b, cut, c]).item() * L / (2 * L + 1)
            assert grad[b, t, h].item() == pytest.approx(value, rel=1e-9), (b, t, h, distance)


@pytest.mark.parametrize("dtype", [F32, F64, HALF], ids=str)
@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("side", [1, 2], ids=["left", "right"])
def test_a_talk_offset_that_is_nan_affects_only_its_own_position(side, bad, dtype):
    inputs = case("talk_conv", 1, 200, 2, 3, 9, dtype)
    clean = call("talk_conv", "cpu", inputs, 9)
    inputs[side][0, 70, 1] = bad
    inputs = [z.requires_grad_() for z in inputs]
    out = call("talk_conv", "cpu", inputs, 9)
    out.sum().backward()  # whatever it gives, it comes back
    if bad != bad:
        assert out[0, 70, 3:].isnan().all()
    else:  # to the sentence's end, or nowhere
        expected = call("talk_conv", "band", [z.double() for z in inputs], 9)[0, 70, 3:]
        torch.testing.assert_close(out[0, 70, 3:].double(), expected, rtol=1e-2, atol=1e-2)
    rest = torch.ones(200, 6, dtype=torch.bool)
    rest[70, 3:] = False
    # Running sums start elsewhere if a window may span the whole sentence.
    torch.testing.assert_close(out[0][rest], clean[0][rest])


@pytest.mark.parametrize("dtype", [F32, HALF], ids=str)
@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
@pytest.mark.parametrize("name", [*CONVS, "cumulative_mean"])
def test_infinities_and_nan_stay_in_their_windows(name, bad, dtype):
    """NaN stays NaN, and inf stays inf, also when rounded to bfloat16."""
    inputs = case(name, 1, 100, 2, 20, 5, dtype)
    inputs[1:] = [torch.ones_like(z) for z in inputs[1:]]
    inputs[0][0, 50, 7] = bad
    out = call(name, "cpu", inputs, 5)[0]
    there = out.isnan() if bad != bad else out == torch.inf
    first, last = (50, 100) if name == "cumulative_mean" else (48, 53)
    assert there[first:last, 7].all() and there.sum() == last - first


# Each tensor, also each result, first ends and then begins at a page that must not be touched.
GUARDED = """
import sys, torch
sys.path[:0] = sys.argv[1:]
from helpers import guarded
from dynconv import ops
from dynconv import kernels

def draw(*shape):
    return guarded.tensor(shape, dtype).copy_(torch.rand(shape)).requires_grad_()

def empty(*shape, dtype=torch.float32):
    return guarded.tensor(shape[0] if isinstance(shape[0], (tuple, list)) else shape, dtype)

torch.empty = empty
for guarded.at_start in (False, True):
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        for B, T, H, R, K in [(1, 1, 1, 1, 1), (1, 5, 2, 3, 7), (2, 70, 3, 9, 5),
                              (1, 66, 2, 16, 31), (2, 33, 1, 67, 3), (1, 20, 5, 1, 4)]:
            x, wide = draw(B, T, H * R), torch.promote_types(dtype, torch.float32)
            for name, shape in (("depthwise_conv", (H * R, K)), ("light_conv", (H, K)),
                                ("dynamic_conv", (B, T, H, K))):
                for pad_left in {0, K // 2, K - 1}:
                    out = getattr(ops, name)(x, draw(*shape), pad_left=pad_left, impl="cpu")
                    out.backward(draw(B, T, H * R).detach())
            offsets = [guarded.tensor((B, T, H), wide).uniform_() for _ in range(2)]
            offsets = [z.requires_grad_() for z in offsets]
            ops.talk_conv(x, *offsets, max_left=K, max_right=3, impl="cpu").backward(x.detach())
            ops.cumulative_mean(x, impl="cpu").backward(x.detach())
            row_of = torch.randint(4, (B, K))
            assert torch.ops.dynconv.conv_step(
                draw(K, 4, H * R).detach(), row_of, draw(B, H, K).detach()
            ).isfinite().all()
            assert x.grad.isfinite().all()
            x.grad = None
print("done")
"""

# Scratch memory and freed memory are filled with large values.
SCRATCH = """
import sys, torch
sys.path[:0] = sys.argv[1:]
import test_cpu_kernels as tests
for name in tests.OPERATORS:
    for R in (1, 9, 17, 64):
        for T in (1, 5, 65, 130):
            tests.compare(name, torch.float32, 2, T, 3, R, 7)
            tests.compare(name, torch.bfloat16, 2, T, 3, R, 7)
print("done")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs mprotect and glibc's malloc")
@pytest.mark.parametrize(
    ("program", "perturb"), [(GUARDED, "0"), (SCRATCH, "128")], ids=["guarded", "scratch"]
)
def test_memory_outside_a_tensor_is_not_read(program, perturb):
    done = subprocess.run(
        [sys.executable, "-c", program, str(ROOT / "tests"), str(ROOT / "tests/kernels")],
        env=os.environ | {"MALLOC_PERTURB_": perturb},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0 and done.stdout == "done\n", done.stderr[-2000:]
