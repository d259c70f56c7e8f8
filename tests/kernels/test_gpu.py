"""The CUDA kernels on a GPU: dtypes, autograd, streams, graphs, compile, AMP.

pytest -o addopts= -m gpu                                               4 to 6 minutes, we guess
compute-sanitizer --tool memcheck python -m pytest -o addopts= -m gpu -k "exact and 17"
compute-sanitizer --tool racecheck python -m pytest -o addopts= -m gpu -k "exact and 64 and float32"

Without -o addopts= they also need what runs the notebooks, nbval.
"""

import pytest
import torch
from helpers.operators import (
    F16,
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
from torch import nn

from dynconv import ops
from dynconv.kernels.cuda import build
from dynconv.layers import DynamicConv, LightConv, TaLKConv

OPERATORS = operators_with("cuda")

pytestmark = [
    pytest.mark.usefixtures("poisoned_memory"),
    pytest.mark.gpu,
    pytest.mark.skipif(bool(build.why_unavailable()), reason=str(build.why_unavailable())),
]


def both(name: str, dtype, B: int, T: int, H: int, R: int, K: int) -> tuple:
    """The kernels' result and gradients, on the CPU, and those in float64."""
    torch.manual_seed(T)
    inputs, g = case(name, B, T, H, R, K, dtype), torch.randn(B, T, H * R).to(dtype)
    actual = graph(name, "cuda", [z.cuda() for z in inputs], K, g.cuda())
    return tuple(z.cpu() for z in actual), expected(name, inputs, K, g)


@pytest.mark.parametrize("R", [64, 128, 100, 6, 1, 17])
@pytest.mark.parametrize("dtype", [F32, HALF, F16, F64], ids=str)
@pytest.mark.parametrize("name", OPERATORS)
def test_as_exact_as_the_dtype(name, dtype, R):
    for T, K in ((1, 7), (64, 31), (129, 3), (700, 63)):
        actual, reference = both(name, dtype, 2, T, 3, R, K)
        assert_exact(actual, reference, f"{name} {dtype} {T=} {R=} {K=}", float32=1e-6)


@pytest.mark.parametrize("name", OPERATORS)
def test_the_shapes_of_the_paper(name):
    actual, reference = both(name, F32, 10, 1000, 16, 64, 31)
    assert_exact(actual, reference, name)


@pytest.mark.parametrize("name", OPERATORS)
def test_the_same_bits_every_time(name):
    inputs = [z.cuda() for z in case(name, 4, 500, 16, 64, 31, HALF)]
    g = torch.randn_like(inputs[0])
    runs = [graph(name, "cuda", inputs, 31, g) for _ in range(5)]
    assert all(torch.equal(a, b) for run in runs for a, b in zip(run, runs[0], strict=True))


@pytest.mark.parametrize("name", OPERATORS)
def test_kernels_wait_for_earlier_work_on_their_stream(name):
    """The kernels wait for earlier work on the same stream."""
    inputs = [z.cuda() for z in case(name, 2, 300, 4, 64, 7, F32)]
    reference = call(name, "cuda", inputs, 7)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        late = [torch.zeros_like(z) for z in inputs]
        torch.cuda._sleep(10_000_000)
        for to, z in zip(late, inputs, strict=True):
            to.copy_(z)
        actual = call(name, "cuda", late, 7)
    stream.synchronize()
    assert torch.equal(actual, reference)


@pytest.mark.parametrize("name", OPERATORS)
def test_a_cuda_graph(name):
    """Forward and backward, captured once and replayed on other values."""
    inputs = [z.cuda().requires_grad_() for z in case(name, 2, 100, 4, 64, 7, F32)]
    g = torch.randn_like(inputs[0])

    def step():
        return torch.autograd.grad(call(name, "cuda", inputs, 7), inputs, g)

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        step()
    torch.cuda.current_stream().wait_stream(side)
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        actual = step()
    with torch.no_grad():
        for z, other in zip(inputs, case(name, 2, 100, 4, 64, 7, F32), strict=True):
            z.copy_(other)
    captured.replay()
    torch.cuda.synchronize()
    for a, b in zip(actual, step(), strict=True):
        assert torch.equal(a, b)


def test_a_cuda_graph_draws_anew():
    x, logits = torch.ones(1, 200, 8, device="cuda"), torch.zeros(1, 200, 2, 3, device="cuda")
    captured = torch.cuda.CUDAGraph()
    ops.softmax_conv(x, logits, pad_left=1, dropout=0.5, impl="cuda")
    with torch.cuda.graph(captured):
        out = ops.softmax_conv(x, logits, pad_left=1, dropout=0.5, impl="cuda")
    results = []
    for _ in range(2):
        captured.replay()
        results.append(out.clone())
    assert not torch.equal(*results)


@pytest.mark.parametrize("name", OPERATORS)
def test_kernels_work_under_torch_compile(name):
    inputs = [z.cuda() for z in case(name, 2, 50, 4, 64, 7, F32)]
    g = torch.randn_like(inputs[0])
    compiled = torch.compile(
        lambda *inputs: call(name, "cuda", list(inputs), 7) * 2, fullgraph=True
    )
    leaves = [z.clone().requires_grad_() for z in inputs]
    out = compiled(*leaves)
    reference = graph(name, "cuda", inputs, 7, g * 2)
    torch.testing.assert_close(out, reference[0] * 2)
    for a, b in zip(torch.autograd.grad(out, leaves, g), reference[1:], strict=True):
        torch.testing.assert_close(a, b)


LAYERS = {
    "light": lambda: LightConv(128, 2, 7, glu=True, weight_dropout=0.1),
    "dynamic": lambda: DynamicConv(128, 2, 7, glu=True, weight_dropout=0.1),
    "talk": lambda: TaLKConv(128, 2, 3, 3, glu=True),
}


@pytest.mark.parametrize("dtype", [HALF, F16], ids=str)
@pytest.mark.parametrize("kind", LAYERS)
def test_layers_under_autocast(kind, dtype):
    """They come close to their own float32 on the CPU, and train."""
    torch.manual_seed(0)
    layer, x = LAYERS[kind](), torch.randn(2, 50, 128)
    reference = layer.eval()(x)
    layer.cuda()
    with torch.autocast("cuda", dtype=dtype):
        actual = layer(x.cuda())
        assert actual.dtype == dtype
        layer.train()(x.cuda()).float().square().sum().backward()
    assert (actual.float().cpu() - reference).norm() < 0.03 * reference.norm()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in layer.parameters())


def test_data_parallel_training(tmp_path):
    """One process, NCCL: the gradients are those without DDP."""
    store = f"file://{tmp_path}/store"
    torch.distributed.init_process_group("nccl", init_method=store, rank=0, world_size=1)
    try:
        torch.manual_seed(0)
        layer, x = LAYERS["dynamic"]().eval().cuda(), torch.randn(2, 50, 128, device="cuda")
        layer(x).square().sum().backward()
        reference = [p.grad.clone() for p in layer.parameters()]
        layer.zero_grad()
        nn.parallel.DistributedDataParallel(layer)(x).square().sum().backward()
        for p, grad in zip(layer.parameters(), reference, strict=True):
            torch.testing.assert_close(p.grad, grad)
    finally:
        torch.distributed.destroy_process_group()


def test_more_than_32_bits_of_numbers():
    """More than 2^31 elements: the last sentence is as exact as the first."""
    B, T, C, H, K = 33, 2**16, 1024, 16, 3
    x = torch.randn(1, T, C, device="cuda", dtype=HALF).expand(B, T, C).contiguous()
    weight = torch.randn(H, K, device="cuda", dtype=HALF)
    out = ops.light_conv(x, weight, pad_left=1, impl="cuda")
    assert torch.equal(out[0], out[-1])
    del out
    offsets = torch.rand(1, T, H, device="cuda").expand(B, T, H).contiguous()
    out = ops.talk_conv(x, offsets, None, max_left=7, max_right=0, impl="cuda")
    assert torch.equal(out[0], out[-1])


def test_mixed_devices_are_refused():
    x, weight = torch.zeros(1, 3, 4, device="cuda"), torch.zeros(2, 3)
    with pytest.raises(ValueError, match="x is on cuda:0, weight on cpu: move one"):
        ops.light_conv(x, weight, pad_left=1)


def test_dropconnect_on_the_gpu_is_that_of_the_simulator():
    from dynconv.lab import simulate

    if simulate.why_unavailable():
        pytest.skip(simulate.why_unavailable())
    torch.manual_seed(0)
    x, logits, seed = torch.randn(2, 40, 128), torch.randn(2, 40, 2, 7), torch.tensor([2**40 + 5])
    reference = simulate.kernels.softmax_conv(x, logits, seed, 0.3, 3)
    actual = torch.ops.dynconv.softmax_conv(x.cuda(), logits.cuda(), seed.cuda(), 0.3, 3)
    torch.testing.assert_close(actual.cpu(), reference)


def test_a_kernel_of_a_lesson_is_run_and_timed():
    from dynconv.teach.launch import KernelLaunch

    code = "__global__ void copy(const float* x, float* y) { y[threadIdx.x] = x[threadIdx.x]; }"
    x, y = torch.randn(64, device="cuda"), torch.zeros(64, device="cuda")
    launch = KernelLaunch(code, "copy", (1,), (64,), (x, y))
    launch.run()
    assert torch.equal(x, y)
    middle, least, most = launch.microseconds(rounds=3)
    assert 0 < least <= middle <= most
