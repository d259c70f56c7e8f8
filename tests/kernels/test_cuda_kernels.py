"""The CUDA kernels, run on the CPU by the simulator: each dtype, shape, order and edge.

Every kernel is compiled for each dtype, width of its vectors V and lanes of a head G that the
shapes below need; results live in memory that was NaN.
"""

import subprocess
import sys

import pytest
import torch
from conftest import ROOT
from helpers.operators import (
    CONVS,
    F16,
    F32,
    F64,
    HALF,
    assert_exact,
    call,
    case,
    expected,
    mask,
    operators_with,
    scramble,
)

from dynconv import ops
from dynconv.kernels.cuda import build, grids, launches, plan
from dynconv.kernels.cuda.call import convert
from dynconv.kernels.cuda.launches import dropconnect_arguments
from dynconv.kernels.cuda.plan import CUDA_TYPES
from dynconv.lab import simulate
from dynconv.lab.simulate import kernels, simulator
from dynconv.lab.simulate.launch import launch_on_cpu

if simulate.why_unavailable():
    pytest.skip(simulate.why_unavailable(), allow_module_level=True)

CONVOLUTIONS = (*CONVS, "softmax_conv")
OPERATORS = operators_with("cuda")


pytestmark = pytest.mark.usefixtures("poisoned_memory")


def results_of(name: str, inputs: list, K: int, g: torch.Tensor, pad=None) -> tuple:
    """The operator's result and the gradients of its inputs, computed by its kernels."""
    pad = K // 2 if pad is None else pad
    if name == "cumulative_mean":
        return kernels.cumulative_mean(*inputs), kernels.cumulative_mean_backward(g)
    if name == "talk_conv":
        x, left, right = *inputs, *[None] * (3 - len(inputs))
        sizes = K // 2, K - 1 - K // 2
        gradients = kernels.talk_conv_backward(g, x, left, right, *sizes)
        return kernels.talk_conv(x, left, right, *sizes), *gradients[: len(inputs)]
    x, weight = inputs
    if name == "softmax_conv":
        gradients = kernels.softmax_conv_backward(g, x, weight, None, 0.0, pad)
        return kernels.softmax_conv(x, weight, None, 0.0, pad), *gradients
    both = kernels.conv_backward(g, x, weight, pad)
    dx, dweight = (
        kernels.conv_grad_input(g, weight, pad),
        kernels.conv_grad_weight(g, x, list(weight.shape), pad),
    )
    # Gradients computed together and separately are equal up to the order of a sum.
    for a, b in zip(both, (dx, dweight), strict=True):
        torch.testing.assert_close(a, b, rtol=2**-7 if a.element_size() == 2 else 2e-5, atol=1e-4)
    return kernels.conv(x, weight, pad), *both


def compare(name: str, dtype, B: int, T: int, H: int, R: int, K: int) -> None:
    torch.manual_seed(T)
    inputs = case(name, B, T, H, R, K, dtype)
    g = torch.randn(B, T, H * R).to(dtype)
    actual = results_of(name, inputs, K, g)
    assert [a.dtype for a in actual[1:]] == [z.dtype for z in inputs]
    where = f"{name} {dtype} {B=} {T=} {H=} {R=} {K=}"
    # With few values, errors do not average out.
    assert_exact(actual, expected(name, inputs, K, g), where, float32=1e-6)


# R = 64 and 128 are those of the recipes. V = 4, 4, 4, 2, 1, 1 and G = 16, 32, 32, 4, 1, 32:
# lanes are idle at R = 100, a head takes two rounds at R = 40 with V = 1.
@pytest.mark.parametrize("R", [64, 128, 100, 6, 1, 17])
@pytest.mark.parametrize("dtype", [F32, HALF], ids=str)
@pytest.mark.parametrize("name", OPERATORS)
def test_as_exact_as_the_dtype(name, dtype, R):
    for T in (1, 7, 33, 64):
        compare(name, dtype, 2, T, 3, R, 7)


@pytest.mark.parametrize("R", [64, 3])
@pytest.mark.parametrize("dtype", [F16, F64], ids=str)
@pytest.mark.parametrize("name", OPERATORS)
def test_the_other_dtypes(name, dtype, R):
    compare(name, dtype, 2, 33, 2, R, 7)
    compare(name, dtype, 1, 9, 2, R, 31)


# Widths about TILE = 8; wider than the sentence; and so wide that the taps of 32 heads (R = 1)
# come in chunks.
@pytest.mark.parametrize("K", [1, 2, 8, 9, 15, 31, 63, 101, 400])
@pytest.mark.parametrize("name", OPERATORS[:-1])
def test_every_kernel_width_equals_the_oracle(name, K):
    compare(name, F32, 1, 5, 2, 64, K)
    compare(name, F32, 1, 70, 2, 64, K)
    compare(name, F32, 1, 20, 33, 1, K)


BANDS = ("light_conv", "dynamic_conv")
"""the operators that have kernels for tensor cores"""


@pytest.fixture
def started(monkeypatch) -> list:
    """The launches of a test, whose gradients take tensor cores however small they are."""
    known = []
    monkeypatch.setattr(launches, "MIN_TENSOR_CORE_PRODUCTS", 0)

    def start(launch, values, tensors):
        known.append(launch)
        launch_on_cpu(launch, values, tensors)

    monkeypatch.setattr(kernels, "start", start)
    return known


def on_tensor_cores(started: list) -> set:
    """The template arguments V and D of the kernels for tensor cores that were launched."""
    return {launch.template[1:3] for launch in started if "_band" in launch.name}


# D = 2, 3, 4 and 5 blocks, with the fewest and the most taps of each; V = 8 and 4.
@pytest.mark.parametrize("K", [8, 16, 17, 31, 32, 33, 48, 49, 64])
@pytest.mark.parametrize("name", BANDS)
def test_bands_of_any_width(name, K, started):
    for B, T, H, R in ((2, 5, 1, 64), (1, 37, 3, 96), (1, 70, 2, 64)):
        compare(name, HALF, B, T, H, R, K)
    D = -(-K // 16) + 1
    assert on_tensor_cores(started) == {(8, D), (4, D)}


@pytest.mark.parametrize("name", BANDS)
def test_bands_in_float16(name, started):
    compare(name, F16, 2, 40, 2, 128, 31)
    compare(name, F16, 1, 20, 3, 32, 15)
    assert on_tensor_cores(started) == {(8, 3), (4, 2)}


@pytest.mark.parametrize("pad", [0, 1, 14, 27])
@pytest.mark.parametrize("name", BANDS)
def test_bands_of_any_padding_and_strides(name, pad, started):
    """Causal or looking ahead; rows that lie further apart, and begin anywhere in 16 bytes."""
    torch.manual_seed(pad)
    B, T, H, R, K = 2, 50, 2, 64, 28
    (x, weight), g = case(name, B, T, H, R, K, HALF), torch.randn(B, T, H * R).to(HALF)
    exact = [z.double().requires_grad_() for z in (x, weight)]
    out = getattr(ops, name)(*exact, pad_left=pad, impl="shifted")
    reference = out.detach(), *torch.autograd.grad(out, exact, g.double())
    for offset, V in ((8, {8}), (4, {4}), (2, set())):

        def apart(z: torch.Tensor, offset=offset) -> torch.Tensor:
            wide = torch.randn(B, 2 * T, z.shape[2] + 16).to(HALF)[:, ::2, offset : offset - 16]
            return wide.copy_(z)

        started.clear()
        actual = results_of(name, [apart(x), weight], K, apart(g), pad)
        assert_exact(actual, reference, f"{name} {pad=} {offset=}")
        assert {template[0] for template in on_tensor_cores(started)} == V


@pytest.mark.parametrize("name", BANDS)
def test_long_walks_along_bands(name, monkeypatch, started):
    """Of eight tiles, and of those that are left at the end; blocks of several warps."""
    monkeypatch.setattr(grids, "WALKS_PER_GPU", 1)
    monkeypatch.setattr(grids, "BLOCKS_PER_GPU", 1)
    for order in ("forward", 1):
        in_order(order, monkeypatch)
        compare(name, HALF, 1, 16 * 8 * 3 + 23, 1, 64, 31)
    assert {launch.block for launch in started if "conv_band" in launch.name} == {(32, 4)}
    sums = [launch for launch in started if launch.name.endswith("_grad_band")]
    assert len(sums) >= 2 and {launch.block for launch in sums} == {(32, 4)}


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
@pytest.mark.parametrize("name", BANDS)
def test_infinities_and_nan_stay_near_their_windows_on_tensor_cores(name, bad):
    """In their channel, up to 31 positions before those that they concern, and 15 after."""
    for K, t in ((17, 90), (31, 97), (31, 96)):
        x = torch.randn(1, 200, 64).to(HALF)
        x[0, t, 7] = bad
        weight = torch.ones((1, K) if name == "light_conv" else (1, 200, 1, K), dtype=HALF)
        out = kernels.conv(x, weight, 2)[0]
        first, last = t + 2 - K + 1, t + 2
        assert not out[first : last + 1, 7].isfinite().any()
        out[first - 31 : last + 16, 7] = 0
        assert out.isfinite().all()


@pytest.mark.parametrize("name", OPERATORS)
def test_long_sentences_and_heads_of_several_rounds(name):
    compare(name, F32, 1, 700, 2, 6, 7)  # TaLK's long stretches, LightConv's walks
    compare(name, F32, 1, 20, 1, 280, 5)
    compare(name, F32, 3, 9, 17, 4, 3)  # heads that are no multiple of a warp's


def in_order(order: str | int, monkeypatch) -> None:
    """Run the threads of each block in this order from now on."""
    run = simulator.Function.__call__
    monkeypatch.setattr(
        simulator.Function, "__call__", lambda *a, **k: run(*a, **{"order": order} | k)
    )


@pytest.mark.parametrize("name", OPERATORS)
def test_blocks_of_several_warps(name, monkeypatch):
    """As in long sentences: each warp has its own shared memory, and the last one is idle."""
    monkeypatch.setattr(grids, "BLOCKS_PER_GPU", 1)
    started = []

    def start(launch, values, tensors):
        started.append(launch.block)
        launch_on_cpu(launch, values, tensors)

    monkeypatch.setattr(kernels, "start", start)
    for order in ("forward", 1):  # in the second, warps take turns
        in_order(order, monkeypatch)
        for R in (64, 6):
            compare(name, F32, 2, 70, 2, R, 7)
            compare(name, HALF, 1, 37, 3, R, 31)
    if name in CONVOLUTIONS:
        largest = max(y for x, y in started if x == 32 and y < 32)  # sum_rows has 32
        assert largest == (8 if name in ("depthwise_conv", "light_conv") else 4)


@pytest.mark.parametrize("pad", range(5))
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_every_padding_equals_the_oracle(name, pad):
    torch.manual_seed(pad)
    inputs, g = case(name, 2, 12, 2, 4, 5, F32), torch.randn(2, 12, 8)
    exact = [z.double().requires_grad_() for z in inputs]
    impl = "separate" if name == "softmax_conv" else "shifted"
    out = getattr(ops, name)(*exact, pad_left=pad, impl=impl)
    reference = out.detach(), *torch.autograd.grad(out, exact, g.double())
    assert_exact(results_of(name, inputs, 5, g, pad), reference, f"{name} {pad=}")


@pytest.mark.parametrize("name", OPERATORS)
def test_strides_of_all_kinds(name):
    torch.manual_seed(0)
    x, *rest = case(name, 3, 12, 2, 4, 5, F32)
    g = torch.randn(3, 12, 8)
    reference = expected(name, [x, *rest], 5, g)

    def strange(z: torch.Tensor) -> list:
        wide = torch.randn(z.shape[0], z.shape[1] * 2, z.shape[2] + 3)[:, ::2, 1:-2]
        across = torch.empty(z.shape[2], z.shape[1], z.shape[0]).permute(2, 1, 0)
        return [z.transpose(0, 1).contiguous().transpose(0, 1), wide.copy_(z), across.copy_(z)]

    for a, b in zip(strange(x), strange(g), strict=True):
        others = [z.mT.contiguous().mT for z in rest]
        assert_exact(results_of(name, [a, *others], 5, b), reference, name, float32=1e-6)


@pytest.mark.parametrize("name", OPERATORS)
def test_strides_beyond_32_bits(name):
    """64-bit addresses, in a tensor whose second sentence starts 2^31 elements later."""
    torch.manual_seed(0)
    x, *rest = case(name, 2, 5, 2, 4, 3, HALF)
    g = torch.randn(2, 5, 8).to(HALF)
    torch.use_deterministic_algorithms(False)  # 4 GB that nobody touches, not 4 GB of NaN
    far = torch.empty(2**31 + 100, dtype=HALF).as_strided((2, 5, 8), (2**31, 8, 1))
    torch.use_deterministic_algorithms(True)
    actual = results_of(name, [far.copy_(x), *rest], 3, g)
    reference = results_of(name, [x, *rest], 3, g)
    assert all(torch.equal(p, q) for p, q in zip(actual, reference, strict=True))


@pytest.mark.parametrize("name", OPERATORS)
def test_a_batch_of_no_sentences_has_gradients_of_zero(name):
    x, *rest = case(name, 1, 6, 2, 4, 3, F32)
    rest = [z[:0] if z.dim() > 2 else z for z in rest]
    out, dx, *others = results_of(name, [x[:0], *rest], 3, x[:0])
    assert out.shape == dx.shape == (0, 6, 8)
    assert [z.shape for z in others] == [z.shape for z in rest]
    assert not any(z.any() for z in others)  # a sum over nothing


@pytest.mark.parametrize("name", OPERATORS)
def test_the_order_of_threads_changes_no_bit(name, monkeypatch):
    """It would if a barrier were missing; and two equal calls agree in every bit."""
    torch.manual_seed(0)
    # R = 20 shares lanes; K = 63 in chunks for R = 1; tensor cores for R = 32 in half precision.
    results = []
    for order in ("forward", "backward", 1, 2, "forward"):
        in_order(order, monkeypatch)
        of_order = []
        sizes = [(2, 33, 3, 20, 7), (1, 20, 33, 1, 63), (1, 70, 2, 64, 31), (1, 70, 2, 32, 31)]
        for dtype, (B, T, H, R, K) in zip((F32, F32, F32, HALF), sizes, strict=True):
            torch.manual_seed(T)
            inputs = case(name, B, T, H, R, K, dtype)
            of_order += results_of(name, inputs, K, torch.randn(B, T, H * R).to(dtype))
        results.append(of_order)
        monkeypatch.undo()
    for of_order in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(of_order, results[0], strict=True))


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_infinities_and_nan_stay_in_their_windows(name, bad):
    x = torch.randn(1, 60, 40)
    x[0, 30, 7] = bad
    weight = torch.ones({"depthwise_conv": (40, 5), "light_conv": (2, 5)}.get(name, (1, 60, 2, 5)))
    if name == "softmax_conv":
        out = kernels.softmax_conv(x, weight, None, 0.0, 2)[0]
    else:
        out = kernels.conv(x, weight, 2)[0]
    there = out.isnan() if bad != bad else out == torch.inf
    assert there[28:33, 7].all() and there.sum() == 5


ROUND = """
#include "number.cuh"
template <typename Number>
__global__ void cast(const float* x, Number* y, float* z, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  narrow(x[i], y[i]);
  z[i] = widen(y[i]);
}
"""


@pytest.mark.parametrize("dtype", [HALF, F16], ids=str)
def test_half_precision_is_rounded_as_pytorch_rounds(dtype):
    """Ties round to even; NaN, infinities, subnormals and overflow."""
    bits = torch.randint(-(2**31), 2**31, (200_000,)).to(torch.int32)
    ties = (torch.arange(2**16, dtype=torch.int32) << 16) + 2**15  # of bfloat16
    exact = torch.arange(2**15).to(torch.int16).view(F16).float()
    between = (exact[:-1] + exact[1:]) / 2  # of float16
    special = torch.tensor([0.0, -0.0, torch.nan, torch.inf, -torch.inf, 65519, 65520, 3.4e38])
    x = torch.cat([bits.view(F32), ties.view(F32), between, special])
    y, z = torch.empty(len(x), dtype=dtype), torch.empty(len(x))
    text = ROUND.replace('#include "number.cuh"', build.inline_headers("number.cuh"))
    kernel = f"cast<{CUDA_TYPES[dtype]}>"
    function = simulate.Module(text, [kernel]).get_function(kernel)
    arguments = [convert(a) for a in (x, y, z, len(x))]
    function((-(-len(x) // 256),), (256,), arguments)
    torch.testing.assert_close(y, x.to(dtype), rtol=0, atol=0, equal_nan=True)
    torch.testing.assert_close(z, y.float(), rtol=0, atol=0, equal_nan=True)


SPECIAL = [0.0, 1.0, 0.25, 0.5, 0.75, 0.1, 0.9, 1.05, 1.25, 2.5, 1e30]


def test_talk_with_windows_of_any_reach():
    """To one side only, V = 1 in half precision where the ring is large, and beyond any ring."""
    for K, dtype in ((2, HALF), (255, HALF), (255, F32), (300, F32), (300, F64)):
        compare("talk_conv", dtype, 1, 400, 2, 6, K)
    x, left = torch.randn(1, 9, 4), torch.rand(1, 9, 2)
    far = kernels.talk_conv(x, left, left, 2**31 - 1, 1)  # the sum of the reaches is beyond an int
    assert (far * (left[..., 0:1] > 2**-20)).abs().max() < 1e-7


def test_talk_has_a_ring_for_the_widest_window():
    """A lane's sums take 16 bytes, and fewer where the ring would not fit."""
    for dtype, size, V, ring in (
        (F32, 3, 4, 8), (F32, 63, 4, 64), (HALF, 63, 4, 64), (HALF, 127, 2, 128),
        (HALF, 255, 1, 256), (F64, 31, 2, 32), (F64, 127, 1, 128), (F32, 1001, 1, 256),
    ):  # fmt: skip
        x = torch.zeros(1, 9, 64, dtype=dtype)
        columns = grids.ColumnGrid(64, 1, size // 2, size // 2, plan.describe_tensor(x))
        _, block, shared = columns.sizes
        assert (columns.V, columns.ring, block) == (V, ring, (32, 1))
        number = max(4, dtype.itemsize)  # a row more, and the windows of 32 positions, padded
        assert shared == (ring + 1) * 32 * V * number + 33 * 4 * number <= grids.SHARED_BYTES
    for R, H in ((1, 64), (24, 8), (64, 16), (256, 2)):  # as many windows as heads meet a warp
        columns = grids.ColumnGrid(R, H, 15, 15, plan.contiguous_array((1, 9, R * H), F32))
        lanes = 32 * columns.V
        heads = {(min(c + lanes, R * H) - 1) // R - c // R + 1 for c in range(0, R * H, lanes)}
        windows = columns.sizes[2] - (columns.ring + 1) * lanes * 4
        assert max(heads) * 33 * 16 <= windows


def test_the_compiler_knows_the_width_of_contiguous_tensors():
    for C, apart, width in ((256, 256, 256), (256, 512, 0), (192, 192, 0)):
        x, g = (torch.zeros(2, 9, n)[..., :C] for n in (apart, C))
        offsets = [plan.describe_tensor(torch.zeros(2, 9, 2))] * 2
        x, g = plan.describe_tensor(x), plan.describe_tensor(g)
        (forward,) = launches.talk_conv(x, *offsets, 3, 3).launches
        _, backward = launches.talk_conv_backward(g, x, *offsets, 3, 3).launches
        for launch in (forward, backward):
            assert launch.template == ("float", 4, width)


@pytest.mark.parametrize("reach", [4, 400], ids=["ring", "wider than the ring"])
def test_talk_offsets_of_all_kinds(reach):
    """Whole distances, 0, 1, and above 1; and windows that no ring holds."""
    torch.manual_seed(0)
    B, T, H, R, K = 2, 90, 3, 5, 2 * reach + 1
    x, g = torch.randn(2, B, T, H * R, dtype=F64)
    offsets = torch.tensor(SPECIAL, dtype=F64)[torch.randint(len(SPECIAL), (2, B, T, H))]
    inputs = [x, *(offsets if reach == 4 else offsets / 20)]
    inputs[1][:, :, 0] = 0.7  # a head whose windows are all within the ring
    actual = results_of("talk_conv", inputs, K, g)
    reference = (call("talk_conv", "loop", inputs, K), *expected("talk_conv", inputs, K, g)[1:2])
    assert_exact(actual, reference, "")
    in_c = ops.talk_conv(*(leaves := [z.requires_grad_() for z in inputs]), max_left=reach,
                           max_right=reach, impl="blocked")  # fmt: skip
    for a, b in zip(actual[2:], torch.autograd.grad(in_c, leaves, g)[1:], strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("side", [1, 2], ids=["left", "right"])
def test_a_talk_offset_that_is_nan_affects_only_its_own_position(side, bad):
    for K, t in ((9, 70), (9, 0), (9, 199), (801, 70)):
        inputs = case("talk_conv", 1, 200, 2, 3, K, F32)
        clean = results_of("talk_conv", inputs, K, inputs[0])[0]
        inputs[side][0, t, 1] = bad
        out, *gradients = results_of("talk_conv", inputs, K, inputs[0])
        if bad != bad:
            assert gradients[side][0, t, 1].isnan()
            assert out[0, t, 3:].isnan().all()
        else:
            reference = call("talk_conv", "band", [z.double() for z in inputs], K)[0, t, 3:]
            torch.testing.assert_close(out[0, t, 3:].double(), reference, rtol=1e-4, atol=1e-5)
        rest = torch.ones(200, 6, dtype=torch.bool)
        rest[t, 3:] = False
        torch.testing.assert_close(out[0][rest], clean[0][rest])


@pytest.mark.parametrize("mean", [0, 1])
def test_talk_is_as_exact_at_the_end_of_a_long_text(mean):
    inputs = case("talk_conv", 1, 20_000, 1, 2, 63, F32, mean)
    inputs[1:] = [z * 0.9 for z in inputs[1:]]
    g = torch.randn(1, 20_000, 2) + mean
    reference = call("talk_conv", "blocked", [z.double() for z in inputs], 63)
    actual = results_of("talk_conv", inputs, 63, g)
    for part in (slice(0, 1000), slice(-1000, None)):
        assert (actual[0][:, part] - reference[:, part]).norm() <= 5e-7 * reference[:, part].norm()


def test_softmax_of_the_least_numbers():
    """-inf drops a tap, the least number in all taps leaves them equal; only -inf gives NaN."""
    x = torch.randn(1, 20, 64)
    for dtype in (F32, F64):
        logits = torch.full((1, 20, 1, 7), torch.finfo(dtype).min, dtype=dtype)
        logits[0, 5, 0] = torch.tensor([-torch.inf, 1, 2, -torch.inf, 0, 300, 299])
        logits[0, 9] = -torch.inf
        inputs = [x.to(dtype), logits]
        out = kernels.softmax_conv(*inputs, None, 0.0, 3)
        reference = call("softmax_conv", "separate", inputs, 7)
        torch.testing.assert_close(out, reference, equal_nan=True)
        assert out[0, 9].isnan().all() and out.isnan().sum() == 64


def test_the_hash_is_the_published_one():
    assert scramble(torch.tensor([0, 1, 0xFFFFFFFF])).tolist() == [0, 0x514E28B7, 0x81F16F39]


@pytest.mark.parametrize(("R", "K", "dtype"), [(64, 7, F32), (1, 63, F32), (64, 7, F64)])
def test_dropconnect_drops_the_same_weights_forward_and_backward(R, K, dtype):
    torch.manual_seed(0)
    B, T, H, seed, dropout = 2, 20, 5, 0x123456789ABCDEF, 0.3
    x, g = torch.randn(2, B, T, H * R, dtype=dtype)
    logits = torch.randn(B, T, H, K, dtype=dtype)
    drawn = torch.tensor([seed])
    actual = (
        kernels.softmax_conv(x, logits, drawn, dropout, K // 2),
        *kernels.softmax_conv_backward(g, x, logits, drawn, dropout, K // 2),
    )
    leaves = [z.double().requires_grad_() for z in (x, logits)]
    weight = leaves[1].softmax(-1) * mask(seed, logits.shape, dropout)
    out = ops.dynamic_conv(leaves[0], weight, pad_left=K // 2, impl="shifted")
    reference = out.detach(), *torch.autograd.grad(out, leaves, g.double())
    assert_exact(actual, reference, "with a mask")
    other = kernels.softmax_conv(x, logits, drawn + 2**40, dropout, K // 2)
    assert not torch.allclose(other, actual[0])


def test_dropconnect_draws_each_weight_by_itself():
    """The right fraction along taps, heads, positions and seeds."""
    masks = torch.stack([mask(seed, (64, 64, 16), 0.25) > 0 for seed in range(16)]).double()
    assert abs(masks.mean() - 0.75) < 0.002  # sigma is 0.0004
    centred = masks - 0.75
    for dim in range(4):
        share = masks.mean([d for d in range(4) if d != dim])
        sigma = (0.1875 * share.numel() / masks.numel()) ** 0.5
        assert (share - 0.75).abs().max() < 5 * sigma
        neighbours = centred.narrow(dim, 1, masks.shape[dim] - 1)
        both = (centred.narrow(dim, 0, masks.shape[dim] - 1) * neighbours).mean()
        assert abs(both) < 5 * 0.1875 / masks.numel() ** 0.5


V1 = {
    "light_conv": ("lightconv.cu", "light_conv_v1", "light_weight_grad_v1"),
    "dynamic_conv": ("dynamicconv.cu", "dynamic_conv_v1", "dynamic_weight_grad_v1"),
    "softmax_conv": ("softmaxconv.cu", "softmax_conv_v1", None),
    "talk_conv": ("talk.cu", "talk_conv_v1", "talk_grad_v1"),
    "cumulative_mean": ("average.cu", "cumulative_mean_v1", "cumulative_mean_v1"),
}


@pytest.mark.parametrize("dtype", [F32, HALF], ids=str)
@pytest.mark.parametrize("name", V1)
def test_the_ladders_first_version(name, dtype):
    torch.manual_seed(0)
    B, T, H, R, K = 2, 13, 3, 4, 5
    C, number = H * R, CUDA_TYPES[dtype]
    source, forward, backward = V1[name]
    inputs, g = case(name, B, T, H, R, K, dtype), torch.randn(B, T, C).to(dtype)
    x, *rest = inputs
    out, sizes = torch.empty_like(x), (B, T, C, H, K, K // 2)

    def run(kernel, count, *arguments, template=()):
        how = -(-count // 64), (64, 1), 0, arguments
        launch = plan.Launch(source, kernel, (number, *template), *how)
        launch_on_cpu(launch, [convert(z) for z in arguments], [])

    def strides(*tensors):
        return plan.outer_strides(*map(plan.describe_tensor, tensors))

    reference = expected(name, inputs, K, g)
    if name == "cumulative_mean":
        dx = torch.empty_like(x)
        sizes = (B, T, C, *strides(x))
        run(forward, B * C, x, out, *sizes, template=[False])
        run(backward, B * C, g, dx, *sizes, template=[True])
        assert_exact((out, dx), reference, name)
        return
    if name == "talk_conv":
        sizes = (B, T, C, H, K // 2, K - 1 - K // 2)
    if name == "softmax_conv":
        more = [*dropconnect_arguments(0.0), *strides(x, *rest)]
        run(forward, out.numel(), *inputs, None, out, *sizes, *more)
    else:
        more = strides(*rest) if name == "dynamic_conv" else []
        run(forward, out.numel(), *inputs, out, *sizes, *strides(x), *more)
    assert_exact((out,), reference, name)
    if backward:
        grads = [torch.empty_like(z) for z in (inputs if name == "talk_conv" else rest)]
        offsets = rest if name == "talk_conv" else []
        run(backward, grads[0].numel(), g, x, *offsets, *grads, *sizes, *strides(g, x))
        assert_exact(tuple(grads), reference[-len(grads) :], name)


# Each tensor, also each result, first ends and then begins at a page that must not be touched.
GUARDED = """
import sys, torch
sys.path[:0] = sys.argv[1:]
import test_cuda_kernels as tests
from helpers import guarded, operators
from helpers.operators import F32, F64, F16, HALF

torch.use_deterministic_algorithms(False)
allocate = torch.empty_strided

def allocate_guarded(shape, strides, dtype, device):
    if device == "meta":
        return allocate(shape, strides, dtype=dtype, device=device)
    z = guarded.tensor(shape, dtype)
    assert z.stride() == tuple(strides)
    return z

torch.empty_strided = allocate_guarded
for guarded.at_start, tests.grids.BLOCKS_PER_GPU in ((False, 264), (True, 264), (False, 1)):
    for dtype in (F32, F64, F16, HALF):
        for B, T, H, R, K in [(1, 1, 1, 1, 1), (1, 5, 2, 3, 7), (2, 21, 3, 6, 5),
                              (1, 66, 2, 64, 31), (1, 9, 33, 1, 63)]:
            for name in tests.OPERATORS:
                inputs = [guarded.copy(z) for z in operators.case(name, B, T, H, R, K, dtype)]
                g = guarded.copy(torch.ones(B, T, H * R).to(dtype))
                for z in tests.results_of(name, inputs, K, g):
                    assert z.isfinite().all(), (name, dtype, B, T, H, R, K)
                if name == "talk_conv":  # edges that are nowhere, at the ends of memory
                    for offsets in inputs[1:]:
                        offsets[:, [0, -1]] = torch.nan
                    tests.results_of(name, inputs, K, g)
            guarded.kept.clear()
print("done")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs mprotect")
def test_no_memory_but_their_own():
    done = subprocess.run(
        [sys.executable, "-c", GUARDED, str(ROOT / "tests"), str(ROOT / "tests/kernels")],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0 and done.stdout == "done\n", done.stderr[-2000:]
