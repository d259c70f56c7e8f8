"""The operators in PyTorch: opcheck, compile, export, autocast and two processes."""

import os
from datetime import timedelta
from functools import partial

import pytest
import torch
import torch.distributed as dist
from conftest import sized_stack
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.library import opcheck
from torch.nn.parallel import DistributedDataParallel

from dynconv.config import Seq2SeqConfig
from dynconv.kernels.cpu import build as cpu
from dynconv.kernels.cpu import call
from dynconv.kernels.torch_library import eager
from dynconv.layers import AverageAttention, DepthwiseConv, DynamicConv, LightConv, TaLKConv
from dynconv.models import build

B, T, C, H, K = 2, 9, 32, 2, 5
LAYERS = {
    "depthwise": lambda: DepthwiseConv(C, K, glu=True),
    "light": lambda: LightConv(C, H, K, glu=True),
    "dynamic": lambda: DynamicConv(C, H, K, glu=True),
    "talk": lambda: TaLKConv(C, H, 4, 4, glu=True),
    "talk causal": lambda: TaLKConv(C, H, 4, 0, glu=True),
    "average": lambda: AverageAttention(C, 2 * C, causal=True),
}
needs_c_kernels = pytest.mark.skipif(
    cpu.why_unavailable() is not None, reason=str(cpu.why_unavailable())
)


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch.manual_seed(0)
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def arguments() -> dict[str, list[tuple]]:
    """Each registered operator's arguments: shared and own kernels, one-sided and two-sided."""
    x, g, shared = torch.randn(B, T, C), torch.randn(B, T, C), torch.randn(H, K)
    weight, (left, right) = torch.randn(B, T, H, K), torch.rand(2, B, T, H)
    row_of = torch.randint(3, (B, K))
    return {
        "conv": [(x, weight, 2), (x, shared, 4), (x[:, 1:, 1:], torch.randn(C - 1, K), 0)],
        "conv_grad_input": [(g, weight, 2), (g, shared, 4)],
        "conv_grad_weight": [(g, x, weight.shape, 2), (g, x, shared.shape, 4)],
        "conv_backward": [(g, x, weight, 2), (g, x, shared, 4)],
        "talk_conv": [(x, left, right, 3, 2), (x, left, None, 3, 0)],
        "talk_conv_backward": [(g, x, left, right, 3, 2), (g, x, left, None, 3, 0)],
        "cumulative_mean": [(x,)],
        "cumulative_mean_backward": [(g,)],
        "conv_step": [(torch.randn(K, 3, C), row_of, torch.randn(B, H, K))],
    }


@needs_c_kernels
@pytest.mark.parametrize("grad", [False, True], ids=["plain", "grad"])
@pytest.mark.parametrize("name", arguments())
def test_the_schema_agrees_with_the_kernel(name, grad):
    """Schema, fake tensors, autograd and tracing agree with the kernel."""
    if grad and name in ("conv_step", "talk_conv_backward"):
        pytest.skip("not differentiable")
    for case in arguments()[name]:
        if grad:
            case = [z.requires_grad_() if torch.is_tensor(z) else z for z in case]
        opcheck(getattr(torch.ops.dynconv, name).default, tuple(case))


def test_arguments_name_every_operator():
    names = torch._C._dispatch_get_all_op_names()
    ours = {name.split("::")[1] for name in names if name.startswith("dynconv::")}
    # tests/kernels/test_launch.py simulates these.
    only_on_gpus = {"softmax_conv", "softmax_conv_backward"}
    assert ours == set(arguments()) | only_on_gpus


EAGER = eager(call, ["conv", "talk_conv", "cumulative_mean"])
"""as on a GPU, with the C kernels instead of the CUDA kernels"""


@needs_c_kernels
@pytest.mark.parametrize("half", [False, True], ids=["float32", "autocast"])
@pytest.mark.parametrize("name", vars(EAGER))
def test_an_eager_call_is_that_of_the_registered_operator(name, half):
    """Outputs and gradients, for each choice of inputs that need one, and in inference."""
    for case in arguments()[name]:
        floats = [i for i, z in enumerate(case) if torch.is_tensor(z)]
        for needed in [floats, [], *([i] for i in floats)]:
            results = []
            for operators in (torch.ops.dynconv, EAGER):
                given = [z.clone().requires_grad_(i in needed) if i in floats else z
                         for i, z in enumerate(case)]  # fmt: skip
                with torch.autocast("cpu", torch.bfloat16, enabled=half):
                    out = getattr(operators, name)(*given)
                    if needed:
                        out.square().sum().backward()
                results.append([out, *(given[i].grad for i in floats)])
            torch.testing.assert_close(results[1], results[0], rtol=0, atol=0)


@needs_c_kernels
def test_an_eager_call_has_the_derivatives_of_its_operator():
    """A second one, or the same refusal."""
    x, weight = torch.randn(1, 4, 4).double(), torch.randn(1, 4, 2, 3).double()
    inputs = [z.requires_grad_() for z in (x, weight, torch.randn(2, 3).double())]
    for w in inputs[1:]:
        assert torch.autograd.gradgradcheck(lambda *z: EAGER.conv(*z, 1), (x, w))
    left = torch.rand(1, 4, 2, dtype=x.dtype, requires_grad=True)
    (dx,) = torch.autograd.grad(EAGER.talk_conv(x, left, None, 2, 0).sum(), x, create_graph=True)
    with pytest.raises(NotImplementedError, match="no second derivative: use impl='band'"):
        dx.sum().backward()


@needs_c_kernels
def test_an_eager_call_takes_a_batch_of_gradients():
    """By vmap, or as torch.autograd.functional.jacobian passes them with vectorize=True."""
    x, weight = torch.randn(B, T, C, requires_grad=True), torch.randn(H, K)
    y, batch = EAGER.conv(x, weight, 2), torch.randn(3, B, T, C)
    gradient = partial(torch.autograd.grad, y, x, retain_graph=True)
    each = torch.stack([gradient(g)[0] for g in batch])
    torch.testing.assert_close(gradient(batch, is_grads_batched=True)[0], each)
    torch.testing.assert_close(torch.func.vmap(gradient)(batch)[0], each)


@needs_c_kernels
@pytest.mark.parametrize("name", vars(EAGER))
def test_tracing_an_eager_call_finds_the_registered_operator(name):
    """By torch.compile in one graph, and by tensors without data."""
    case, graphs = arguments()[name][0], []

    def backend(module, inputs):
        graphs.append(str(module.graph))
        return module.forward

    function = getattr(EAGER, name)
    compiled = torch.compile(lambda *z: function(*z), fullgraph=True, backend=backend)
    torch.testing.assert_close(compiled(*case), function(*case))
    assert f"dynconv.{name}" in graphs[0]
    with FakeTensorMode() as mode:
        fake = [mode.from_tensor(z) if torch.is_tensor(z) else z for z in case]
        assert function(*fake).shape == case[0].shape


def train_step(layer: nn.Module, x: torch.Tensor) -> torch.Tensor:
    y = x + layer(x)
    y.square().mean().backward()
    return y


@pytest.mark.parametrize(
    ("T", "compiler"), [(9, True), (9, False), (70, False)], ids=["kernels", "short", "long"]
)
@pytest.mark.parametrize("name", LAYERS)
def test_training_step_compiles_into_one_graph(name, T, compiler, monkeypatch):
    """Forward and backward, in one graph, with the results of eager mode.

    Without a C compiler, a short and a long sentence take different ways.
    """
    if not compiler:
        monkeypatch.setattr(cpu, "why_unavailable", lambda dtype: "no compiler")
    layer = LAYERS[name]()
    x = torch.randn(B, T, C)
    y = train_step(layer, x)
    grads = [p.grad.clone() for p in layer.parameters()]
    layer.zero_grad()
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(train_step(compiled, x), y)
    for p, grad in zip(layer.parameters(), grads, strict=True):
        torch.testing.assert_close(p.grad, grad)


@needs_c_kernels
@pytest.mark.parametrize("name", LAYERS)
def test_one_graph_serves_all_lengths(name):
    graphs = []

    def backend(module, inputs):
        graphs.append(module)
        return module.forward

    layer = LAYERS[name]()
    compiled = torch.compile(layer, fullgraph=True, dynamic=True, backend=backend)
    for b, t in [(2, 9), (3, 17), (4, 65), (2, 140)]:
        x = torch.randn(b, t, C)
        torch.testing.assert_close(compiled(x), layer(x))
    assert len(graphs) == 1


class Encoder(nn.Module):
    """The encoder of a model: tokens (B, S) and their padding (B, S) to states (B, S, C)."""

    def __init__(self, mixer: str):
        super().__init__()
        stack = sized_stack(2, mixer, (3, 7))
        self.model = build(
            Seq2SeqConfig(vocab_size=20, channels=C, ffn=C, heads=H, encoder=stack, decoder=stack)
        )

    def forward(self, source: torch.Tensor, pad_mask: torch.Tensor) -> torch.Tensor:
        return self.model.encode(source, pad_mask).hidden_states


@needs_c_kernels
@pytest.mark.parametrize("mixer", ["light", "dynamic", "talk"])
def test_exported_encoder_gives_the_same(mixer, tmp_path):
    """Exported for any batch and length, saved and loaded."""
    encoder = Encoder(mixer).eval()

    def tokens(b, t):
        return torch.randint(20, (b, t)), torch.arange(t).expand(b, t) >= t - 2

    sizes = {0: torch.export.Dim("B", min=2, max=64), 1: torch.export.Dim("S", min=4, max=500)}
    exported = torch.export.export(encoder, tokens(3, 11), dynamic_shapes=(sizes, sizes))
    assert any("dynconv" in str(node.target) for node in exported.graph.nodes)
    torch.export.save(exported, tmp_path / "encoder.pt2")
    loaded = torch.export.load(tmp_path / "encoder.pt2").module()
    for b, t in [(3, 11), (2, 4), (5, 130)]:
        source = tokens(b, t)
        torch.testing.assert_close(loaded(*source), encoder(*source))


@pytest.mark.parametrize("name", LAYERS)
def test_a_step_under_autocast_is_close_to_float32(name):
    """In bfloat16 a training step is close to float32, and its gradients are float32."""
    layer, x = LAYERS[name](), torch.randn(B, 70, C)
    y = train_step(layer, x)
    grads = [p.grad.clone() for p in layer.parameters()]
    layer.zero_grad()
    with torch.autocast("cpu", torch.bfloat16):
        y_half = train_step(layer, x)
    # Three layers of values rounded to 8 bits, whose errors add up at random.
    assert (y_half - y).norm() <= 0.02 * y.norm()
    for (part, p), grad in zip(layer.named_parameters(), grads, strict=True):
        assert p.grad.dtype == torch.float32 and p.grad.isfinite().all()
        if not part.startswith("offset_proj"):  # an edge that moves to another token takes a jump
            assert (p.grad - grad).norm() <= 0.05 * grad.norm()


def batch() -> torch.Tensor:
    return torch.randn(4, 7, C, generator=torch.Generator().manual_seed(1))


def light_layer() -> nn.Module:
    torch.manual_seed(0)
    return LightConv(C, H, K)


def one_of_two(rank: int, store: str, results: str) -> None:
    """One of two processes, with half of the batch; gradients are averaged over both."""
    torch.set_num_threads(1)
    file, wait = f"file://{store}", timedelta(seconds=60)
    dist.init_process_group("gloo", init_method=file, timeout=wait, rank=rank, world_size=2)
    layer = DistributedDataParallel(light_layer())
    layer(batch()[2 * rank : 2 * rank + 2]).square().mean().backward()
    torch.save([p.grad for p in layer.parameters()], f"{results}/{rank}.pt")
    del layer  # while its group lives: freed after it, now and then it waits for ever
    dist.destroy_process_group()


def test_two_processes_give_the_gradients_of_the_joined_batch(tmp_path, monkeypatch):
    if os.path.exists("/sys/class/net/lo"):  # no name service is needed to find oneself there
        monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    arguments = str(tmp_path / "store"), str(tmp_path)
    torch.multiprocessing.start_processes(one_of_two, arguments, 2, start_method="forkserver")
    layer = light_layer()
    layer(batch()).square().mean().backward()
    for rank in range(2):
        for p, grad in zip(layer.parameters(), torch.load(tmp_path / f"{rank}.pt"), strict=True):
            torch.testing.assert_close(grad, p.grad)
