"""How the CUDA kernels are planned, compiled, launched, registered and refused, without a GPU."""

import json
import pickle
import re
import shutil
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from conftest import gpu_record
from helpers.operators import operators_with

from dynconv import ops, paths
from dynconv.dtypes import accumulator_dtype
from dynconv.errors import UserError
from dynconv.kernels.compiler import cached_library
from dynconv.kernels.cuda import build, call, grids, launches, plan
from dynconv.kernels.cuda.plan import Launch, contiguous_array
from dynconv.kernels.torch_library import eager
from dynconv.lab import ledger, simulate
from dynconv.lab.bench.cases import Case, Shape
from dynconv.lab.bench.kernels import predict, roofline
from dynconv.lab.nvidia import nvdisasm, nvrtc
from dynconv.layers import DynamicConv
from dynconv.ops.registry import OPERATORS

F32, F64, F16, HALF = torch.float32, torch.float64, torch.float16, torch.bfloat16
ARCHITECTURES = ("sm_75", "sm_80", "sm_90")
V1 = {
    "lightconv.cu": ["light_conv_v1", "light_weight_grad_v1"],
    "dynamicconv.cu": ["dynamic_conv_v1", "dynamic_weight_grad_v1"],
    "softmaxconv.cu": ["softmax_conv_v1"],
    "talk.cu": ["talk_conv_v1", "talk_grad_v1"],
    "average.cu": [],
}


def names_of(dtype: torch.dtype, R: int, architecture: int) -> dict[str, set[str]]:
    """Every kernel that the operators launch for heads of R channels, by source."""
    number = plan.CUDA_TYPES[dtype]
    names = {source: {f"{name}<{number}>" for name in V1[source]} for source in V1}
    names["average.cu"] = {f"cumulative_mean_v1<{number}, {flag}>" for flag in ("true", "false")}
    B, T, H, K = 1, 16, 2, 3
    x = contiguous_array((B, T, H * R), dtype)
    dynamic = contiguous_array((B, T, H, K), dtype)
    left = contiguous_array((B, T, H), accumulator_dtype(dtype))
    plans = [
        launches.softmax_conv(x, dynamic, None, 0.0, 1),
        launches.softmax_conv_backward(x, x, dynamic, None, 0.0, 1),
        launches.cumulative_mean(x),
        launches.cumulative_mean_backward(x),
        launches.talk_conv(x, left, left, 1, 1),
        launches.talk_conv_backward(x, x, left, left, 1, 1),
    ]
    x = x._replace(architecture=architecture)
    for K in (3, 8, 31, 48, 64):  # with tensor cores, a kernel for each
        for weight in (contiguous_array((*shape, K), dtype) for shape in ((H,), (B, T, H))):
            plans += [launches.conv(x, weight, 1), launches.conv_backward(x, x, weight, 1)]
            plans += [launches.conv_grad_input(x, weight, 1)]
            plans += [launches.conv_grad_weight(x, x, weight.shape, 1)]
    for planned in plans:
        for launch in planned.launches:
            names[launch.source].add(launch.kernel)
    return names


# The recipes' heads in the dtypes of training, then the ends of the scale: V = 1, all G.
HEADS = {F32: (64, 1, 6), HALF: (64, 128), F16: (64, 17), F64: (64,)}


@cache
def compiled(source: str, dtype: torch.dtype, architecture: str) -> nvrtc.Compiled:
    """Every kernel of a source for one dtype: heads of different widths share most of them."""
    number = int(architecture.removeprefix("sm_"))
    names = {name for R in HEADS[dtype] for name in names_of(dtype, R, number)[source]}
    return compile_once(source, sorted(names), architecture)


def compile_once(source: str, names: list[str], architecture: str) -> nvrtc.Compiled:
    """Compile these kernels, unless an earlier run of the tests has compiled just the same."""
    code, parser = build.inline_headers(source), Path(nvrtc.__file__).read_text()
    parts = [code, parser, *names, *nvrtc.compiler_options(architecture), nvrtc.version()]
    parts.append(nvrtc.__name__)  # which a pickle names

    def make(path: Path) -> None:
        path.write_bytes(pickle.dumps(nvrtc.compile_program(code, names, architecture)))

    path = cached_library(f"{architecture}-{source}", parts, make, RuntimeError)
    return pickle.loads(path.read_bytes())


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize(("dtype", "R"), [(d, R) for d in HEADS for R in HEADS[d]], ids=str)
@pytest.mark.skipif(bool(nvrtc.why_unavailable()), reason=str(nvrtc.why_unavailable()))
def test_every_kernel_compiles_without_a_warning(dtype, R, architecture):
    """And without spilling registers."""
    for source, names in names_of(dtype, R, int(architecture.removeprefix("sm_"))).items():
        program = compiled(source, dtype, architecture)
        assert program.warnings == []
        for name in names:
            used = program.kernels[name]
            # A few values that are needed once per tile may be spilled.
            limit = 128 if R >= 64 and dtype != F64 else 320
            assert used.spilled <= limit and used.stack <= limit, (name, used)
            assert used.shared <= grids.SHARED_BYTES


def test_a_source_includes_each_header_once():
    for source in V1:
        text = build.inline_headers(source)
        assert max(map(len, text.splitlines())) <= 100
        assert "#include" not in text
        assert text.count("struct Accumulator { using type = float; }") == 1


@pytest.mark.parametrize(
    ("changes", "V"),
    [
        ({}, 8),
        ({"dtype": F16}, 8),
        ({"architecture": 80}, 8),
        ({"architecture": 120}, 8),
        ({"R": 96}, 4),
        ({"alignment": 8}, 4),
        ({"strides": (1000, 132, 1)}, 4),
        ({"K": 8}, 8),
        ({"K": 64}, 8),
        ({"dtype": F32}, None),
        ({"architecture": 75}, None),
        ({"R": 48}, None),
        ({"R": 4}, None),
        ({"alignment": 4}, None),
        ({"strides": (1000, 130, 1)}, None),
        ({"K": 7}, None),
        ({"K": 65}, None),
    ],
    ids=str,
)
def test_the_rule_for_tensor_cores(changes, V):
    given = {"dtype": HALF, "R": 64, "K": 31} | changes
    dtype, R, K = (given.pop(name) for name in ("dtype", "R", "K"))
    x = contiguous_array((3, 100, 2 * R), dtype)._replace(**given)
    for shape in ((2, K), (3, 100, 2, K)):
        weight = contiguous_array(shape, dtype)
        plans = launches.conv(x, weight, 1), launches.conv_grad_input(x, weight, 1)
        plans += (launches.conv_grad_weight(x, x, shape, 1),)
        for launch in (one for each in plans for one in each.launches if one.name != "sum_rows"):
            assert launch.name.endswith("_band") == (V is not None)
            assert V is None or launch.template[1:3] == (V, -(-K // 16) + 1)


@pytest.mark.parametrize("T", [512, 8192])
def test_few_products_of_a_gradient_take_a_launch_less(T):
    """Where the plan takes the other kernels, they are expected to be faster than tensor cores."""
    case = Case("dynamic_conv", 31, HALF, Shape(2, T, 512, 8))
    instructions = predict.instruction_counts(
        ledger.read("kernels-predicted")["numbers"]["kernels"]
    )
    known = {}
    for way, least in (("few", 10**12), ("many", 0), ("rule", launches.MIN_TENSOR_CORE_PRODUCTS)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(launches, "MIN_TENSOR_CORE_PRODUCTS", least)
            known[way] = roofline.predict_case(case, instructions)["backward"]
    assert known["few"]["launches"] == known["many"]["launches"] - 1
    if T == 512:
        assert known["rule"] == known["few"]
        assert known["few"]["expected_us"] < 0.9 * known["many"]["expected_us"]
    else:
        assert known["rule"] == known["many"]
        assert known["many"]["expected_us"] < known["few"]["expected_us"]


@pytest.mark.parametrize("T", [10, 512, 8192])
def test_tensor_cores_read_g_once_for_both_gradients_of_lightconv(T):
    """They take as many launches as the other kernels, and are expected to be faster."""
    case = Case("light_conv", 31, HALF, Shape(2, T, 512, 8))
    instructions = predict.instruction_counts(
        ledger.read("kernels-predicted")["numbers"]["kernels"]
    )
    known = roofline.predict_case(case, instructions)["backward"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launches, "tensor_core_grid", lambda *arrays: None)
        others = roofline.predict_case(case, instructions)["backward"]
    assert known["launches"] == others["launches"] == 2
    assert known["us"]["bytes"] == others["us"]["bytes"]
    assert known["expected_us"] < others["expected_us"]


def test_the_architecture_of_a_gpu(monkeypatch):
    capabilities = {0: (9, 0), 1: (7, 5)}
    monkeypatch.setattr(torch.cuda, "get_device_capability", capabilities.__getitem__)
    plan.compute_capability.cache_clear()
    found = []
    for index in capabilities:
        x = SimpleNamespace(shape=(1,), dtype=HALF, stride=lambda: (1,), data_ptr=lambda: 48)
        x.get_device = partial(int, index)
        found.append(plan.describe_tensor(x))
    plan.compute_capability.cache_clear()
    assert [(x.architecture, x.alignment) for x in found] == [(90, 16), (75, 16)]
    assert plan.describe_tensor(torch.zeros(1)).architecture == 90  # simulated
    assert plan.contiguous_like(found[1]).architecture == 75


LIMITS = re.compile(r"//   K = (\d+) +(\w+) +(\w+) +([\d. ]+)  not measured")


@pytest.mark.parametrize(
    ("source", "operator"),
    [
        ("lightconv.cu", "light_conv"),
        ("dynamicconv.cu", "dynamic_conv"),
        ("softmaxconv.cu", "softmax_conv"),
        ("talk.cu", "talk_conv"),
    ],
)
def test_the_limits_in_the_headers_are_those_of_the_record(source, operator):
    """And the record is what the code computes today."""
    lines = LIMITS.findall(build.inline_headers(source))
    assert len(lines) >= 4
    record = ledger.read("kernels-predicted")["numbers"]
    rows, instructions = record["rows"], predict.instruction_counts(record["kernels"])
    for K, dtype, direction, numbers in lines:
        case = Case(operator, int(K), getattr(torch, dtype), Shape(10, 1000, 1024, 16))
        named = case.describe() | {"direction": direction}
        (row,) = (row for row in rows if named.items() <= row.items())
        assert row == named | roofline.predict_case(case, instructions)[direction]
        recorded = (*row["us"].values(), row["expected_us"])
        assert numbers.split() == [f"{number:.1f}" for number in recorded], (K, dtype, direction)


@pytest.mark.skipif(bool(nvrtc.why_unavailable()), reason=str(nvrtc.why_unavailable()))
@pytest.mark.skipif(bool(nvdisasm.why_unavailable()), reason=str(nvdisasm.why_unavailable()))
@pytest.mark.parametrize("source", ["lightconv.cu", "dynamicconv.cu", "softmaxconv.cu", "talk.cu"])
def test_no_loop_grows(source):
    """As compiled, it has the record's instructions, up to what another compiler may add."""
    kernels = ledger.read("kernels-predicted")["numbers"]["kernels"]
    ceilings = predict.instruction_counts([row for row in kernels if row["source"] == source])
    assert len(ceilings) >= 4
    loops = nvdisasm.main_loops(compile_once(source, list(ceilings), "sm_90"))
    for name, (most, around) in ceilings.items():
        loop = loops[name]
        walks = name.split("<")[0] in ("light_conv_band", "dynamic_conv_band", "light_grad_band")
        tiles = int(name.split(", ")[2].rstrip(">")) if walks else 1
        tiles = grids.STEPS if name.startswith("talk") else tiles
        assert most / 2 < loop.instructions / tiles <= 1.05 * most, name
        assert not around or around / 2 < loop.around <= 1.05 * around, name
        if "_band<" in name:  # what is on its way before anything is multiplied: see band.cuh
            before, _, _ = "\n".join(loop.code).partition("HMMA")
            at_once = 8 if "light_grad" in name else 4
            if "weight_grad" in name:
                at_once = 2 + 2 * int(re.findall(r"\d+", name)[2])
            assert before.count("LDG.E.128") >= at_once, name


SIZES = """
#include "number.cuh"
#include "window.cuh"
#include "taps.cuh"
#include "band.cuh"
__global__ void read(int* sizes) {
  sizes[0] = TILE, sizes[1] = VECTOR_BYTES, sizes[2] = QUAD<bfloat16>, sizes[3] = QUAD<double>;
  sizes[4] = BAND, sizes[5] = BAND * PITCH<3> * sizeof(bfloat16);
}
"""


@pytest.mark.skipif(bool(simulate.why_unavailable()), reason=str(simulate.why_unavailable()))
def test_plans_have_the_sizes_of_the_headers():
    text = re.sub('#include "(.*)"', lambda include: build.inline_headers(include[1]), SIZES)
    sizes = np.zeros(6, np.int32)
    kernel = simulate.Module(text, ["read"]).get_function("read")
    kernel((1,), (1,), [np.uint64(sizes.ctypes.data)])
    quads = [grids.elements_per_load(contiguous_array((1, 1, 1), dtype)) for dtype in (HALF, F64)]
    band = grids.BandGrid(contiguous_array((1, 10, 64), HALF), 8, 31, 64, HALF).sizes[2]
    known = [grids.TILE, plan.VECTOR_BYTES, *quads, grids.BAND, band]
    assert sizes.tolist() == known


class Gpu:
    """Stands in for the parts of CuPy that a launch uses, and records the calls."""

    class CompileException(Exception):
        pass

    class CUDADriverError(RuntimeError):
        pass

    def __init__(self, monkeypatch):
        self.events, self.launched, self.compiled, self.failure = [], [], [], None
        self.capturing = False
        gpu = self

        @contextmanager
        def inside(*what):
            self.events.append(("enter", what))
            yield

        def compile_(**options):
            self.compiled.append(options)
            return SimpleNamespace(get_function=lambda name: partial(self.run, name))

        class FakeStream:
            def __init__(self, stream):
                self.stream = stream

            def __enter__(self):
                gpu.events.append(("enter", ("stream", self.stream.__cuda_stream__())))

            def __exit__(self, *error):
                pass

        self.cupy = SimpleNamespace(
            RawModule=compile_,
            cuda=SimpleNamespace(
                Stream=SimpleNamespace(from_external=FakeStream),
                Device=partial(inside, "device"),
                compiler=SimpleNamespace(CompileException=self.CompileException),
            ),
        )
        for cached in (build.compile_for_gpu, call.cupy_stream):
            cached.cache_clear()
        for module in (build, call):
            monkeypatch.setattr(module, "cupy", lambda: self.cupy)
        current = SimpleNamespace(cuda_stream=77)
        monkeypatch.setattr(torch.cuda, "current_stream", lambda device: current)
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "GPU of this test")
        monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: self.capturing)

    def run(self, name, grid, block, args, shared_mem):
        if self.failure:
            raise self.failure
        self.events.append("launch")
        self.launched.append((name, grid, block, args, shared_mem))


@pytest.fixture(autouse=True)
def fresh_lookups():
    """Clear the caches of what this machine can do."""
    looked_up = build.why_unavailable, plan.compute_capability, build.tested_architectures
    for function in looked_up:
        function.cache_clear()
    yield
    for function in looked_up:
        function.cache_clear()


@pytest.fixture
def gpu(monkeypatch):
    yield Gpu(monkeypatch)
    for cached in (build.compile_for_gpu, call.cupy_stream):
        cached.cache_clear()


class OnGpu(torch.Tensor):
    """A tensor that claims to be on a GPU."""

    def __new__(cls, index: int):
        tensor = torch.zeros(3).as_subclass(cls)
        tensor.index = index
        return tensor

    @property
    def device(self):
        return torch.device("cuda", self.index)


def test_a_launch_on_the_device_and_stream_of_pytorch(gpu):
    x = OnGpu(1)
    arguments = (x, None, 5, 0.5, np.int64(2**40), np.float64(0.1))
    launch = Launch("talk.cu", "talk_conv", ("float", 1), 7, (32, 4), 1024, arguments)
    call.launch_on_gpu(launch, tuple(map(call.convert, arguments)), [x])
    ((name, grid, block, args, shared),) = gpu.launched
    assert (name, grid, block, shared) == ("talk_conv<float, 1>", (7,), (32, 4), 1024)
    assert args == (x.data_ptr(), 0, 5, 0.5, 2**40, 0.1)
    types = [np.uint64, np.uint64, np.int32, np.float32, np.int64, np.float64]
    assert [type(a) for a in args] == types
    inside = [("enter", ("device", 1)), ("enter", ("stream", (0, 77))), "launch"]
    assert gpu.events[:3] == inside


def test_a_kernel_is_compiled_once_for_each_device(gpu):
    launch = Launch("talk.cu", "talk_conv", ("float", 1), 1, (32, 1), 0, ())
    for index in (0, 0, 1, 0):
        call.launch_on_gpu(launch, (), [OnGpu(index)])
    assert len(gpu.launched) == 4 and len(gpu.compiled) == 2
    assert gpu.compiled[0]["name_expressions"] == ["talk_conv<float, 1>"]
    assert gpu.compiled[0]["code"] == build.inline_headers("talk.cu")


@pytest.mark.parametrize("kind", ["CompileException", "CUDADriverError"])
def test_what_the_gpu_refuses_is_reported(gpu, kind):
    gpu.failure = getattr(gpu, kind)("out of registers")
    message = "talk_reach<float> of talk.cu on GPU of this test: out of registers; choose another"
    launch = Launch("talk.cu", "talk_reach", ("float",), 1, (8, 128), 0, ())
    with pytest.raises(build.NoGpuKernelsError, match=message):
        call.launch_on_gpu(launch, (), [OnGpu(0)])
    gpu.capturing = True
    with pytest.raises(build.NoGpuKernelsError, match="call it once before the graph is captured"):
        call.launch_on_gpu(launch, (), [OnGpu(0)])


def test_a_plan_is_made_once_for_each_shape_and_dtype():
    planned, launched = [], []

    def mean(x, backward):
        planned.append((*x.shape, x.dtype, backward))
        return launches.plan_mean(x, ("x", "out"), backward)

    kernels = call.Kernels(lambda launch, *given: launched.append((launch.kernel, *given)))
    run = partial(call.plan_runner(mean), kernels)
    first, second = (torch.rand(2, 3, 8) for _ in range(2))
    for x in (first, second, first.double(), second[:, :2], first):
        out = run(x, False)
        assert out.shape == x.shape and out.dtype == x.dtype
        kernel, (*addresses, T, C, stretch, batch, time), tensors = launched[-1]
        assert kernel.startswith("cumulative_mean<" + plan.CUDA_TYPES[x.dtype])
        source, result, sums = tensors
        assert source is x and result is out and sums.shape == (2, 1, 8)
        assert addresses == [z.data_ptr() for z in (source, sums, result)]
        assert (T, C, stretch, batch, time) == (x.shape[1], 8, 16, *x.stride()[:2])
        kinds = [int] * 3 + [np.generic] * 5  # in an int CuPy sees 8 bytes, as addresses have
        assert all(map(isinstance, launched[-1][1], kinds))
    run(first, True)
    assert len(planned) == 4 and planned[-1] == (2, 3, 8, F32, True)
    shape_is_a_list = call.Kernels(lambda *_: None).conv_grad_weight(first, first, [2, 3], 1)
    assert shape_is_a_list.shape == (2, 3)


def test_a_size_beyond_32_bits_is_refused():
    with pytest.raises(ValueError, match="2,147,483,648 exceeds a C int: split the input"):
        call.convert(2**31)
    assert call.convert(2**31 - 1) == 2**31 - 1


@pytest.mark.parametrize(
    ("cupy", "available", "words"),
    [
        (None, True, r"no CuPy: pip install 'dynconv\[gpu\]'"),
        ("cupy", False, "PyTorch sees no GPU: see nvidia-smi"),
    ],
)
def test_why_the_kernels_cannot_run(cupy, available, words, monkeypatch):
    monkeypatch.setattr(build, "find_spec", lambda name: cupy)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: available)
    x = torch.zeros(1, 2, 3)
    with pytest.raises(ValueError, match=f"impl='cuda' cannot run: {words}"):
        ops.light_conv(x, torch.ones(3, 1), pad_left=0, impl="cuda")
    assert "cuda" not in ops.implementations("light_conv")


def test_what_cupy_misses_is_reported(monkeypatch):
    def fail():
        raise RuntimeError("no libnvrtc.so.13\nmore")

    runtime = SimpleNamespace(getDeviceCount=lambda: 1)
    nvrtc = SimpleNamespace(getVersion=fail)
    monkeypatch.setattr(build, "find_spec", lambda name: "cupy")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    fake = SimpleNamespace(cuda=SimpleNamespace(runtime=runtime, nvrtc=nvrtc))
    monkeypatch.setattr(build, "cupy", lambda: fake)
    text = "CuPy does not start (no libnvrtc.so.13): pip install 'dynconv[gpu]', for a driver"
    assert build.why_unavailable() == text + " of CUDA 13"


@pytest.mark.parametrize(
    ("x", "words"),
    [
        (torch.zeros(1), r"x is on cpu, the CUDA kernels run on a GPU: move it with \.cuda\(\)"),
        (
            SimpleNamespace(device=torch.device("cuda", 0), dtype=torch.complex64),
            "x is torch.complex64, the CUDA kernels take float32, float64, float16, bfloat16",
        ),
    ],
)
def test_what_the_kernels_do_not_take(x, words, monkeypatch):
    monkeypatch.setattr(build, "why_unavailable", lambda: None)
    assert not build.supports(x)
    with pytest.raises(AssertionError, match=words):
        raise AssertionError(build.why_unsupported(x))


@pytest.mark.parametrize("operator", operators_with("cuda"))
def test_auto_takes_the_kernels_where_their_tests_have_passed(operator, monkeypatch):
    monkeypatch.setattr(build, "why_unavailable", lambda: None)
    monkeypatch.setattr(build, "tested_architectures", lambda: {"sm_90": True})
    capability = {0: (9, 0), 1: (8, 0)}
    monkeypatch.setattr(torch.cuda, "get_device_capability", capability.__getitem__)
    x = SimpleNamespace(device=torch.device("cuda", 0), dtype=HALF)
    assert OPERATORS[operator].choose_auto(x, 100, 3) == "cuda"
    x.device = torch.device("cuda", 1)  # another architecture, on which nothing was tested
    fallback = OPERATORS[operator].choose_auto(x, 100, 3)
    assert fallback not in ("cuda", "cpu")
    monkeypatch.setattr(build, "tested_architectures", lambda: {"sm_80": True})
    assert OPERATORS[operator].choose_auto(x, 100, 3) == "cuda"
    assert build.supports(x)  # so impl="cuda" may be requested anywhere
    x.dtype = torch.complex64
    assert OPERATORS[operator].choose_auto(x, 100, 3) == fallback


def test_a_record_verifies_an_architecture(tmp_path, monkeypatch):
    """In a checkout it lies in data/results, beside the package; in the wheel, in the package.

    A record of other sources does not count.
    """
    for folder in ("data/results", "dynconv/data/results"):
        (tmp_path / folder).mkdir(parents=True)
    monkeypatch.setattr(paths, "PACKAGE", tmp_path / "dynconv")
    assert build.tested_architectures() == {}
    for record in (
        "data/results/gpu-tests-sm_80.json",
        "dynconv/data/results/gpu-tests-sm_90.json",
    ):
        text = json.dumps({"numbers": {"sources": build.sources_hash()}})
        (tmp_path / record).write_text(text, encoding="utf-8")
    build.tested_architectures.cache_clear()
    assert build.tested_architectures() == {"sm_80": True, "sm_90": True}
    monkeypatch.setattr(build, "sources_hash", lambda: "other sources")
    build.tested_architectures.cache_clear()
    assert build.tested_architectures() == {"sm_80": False, "sm_90": False}
    monkeypatch.setattr(build, "architecture_name", lambda index: "sm_90")
    assert not build.is_trusted_on(torch.zeros(1))
    for damaged in ("{", "[]", "{}", '{"numbers": {"passed": 3}}'):
        (tmp_path / record).write_text(damaged, encoding="utf-8")
        build.tested_architectures.cache_clear()
        with pytest.raises(UserError, match="sm_90.json: no record of the GPU tests .* again"):
            build.tested_architectures()


@pytest.mark.parametrize(
    "name, decides",
    [
        ("cuda/talk.cu", True),
        ("cuda/call.py", True),
        ("layout.py", True),
        ("../dtypes.py", True),
        ("torch_library.py", True),
        ("constant.py", False),
        ("compiler.py", False),
    ],
)
def test_a_record_is_of_what_decides_a_launch(name, decides, tmp_path, monkeypatch):
    kernels = build.SOURCES.parent
    copy = shutil.copytree(kernels, tmp_path / "kernels")
    shutil.copy(kernels.parent / "dtypes.py", tmp_path)
    monkeypatch.setattr(build, "SOURCES", copy / "cuda")
    before = build.sources_hash()
    with (copy / name).open("a", encoding="utf-8") as file:
        file.write("\n")
    assert (build.sources_hash() != before) is decides


PASS = SimpleNamespace(keywords=("gpu",))


@pytest.mark.parametrize(
    ("options", "stats", "written"),
    [
        ({}, {"passed": [PASS, PASS]}, True),
        ({}, {"passed": [PASS], "skipped": [SimpleNamespace()]}, True),  # another module
        ({}, {}, False),
        ({}, {"passed": [PASS], "failed": [PASS]}, False),
        ({}, {"passed": [PASS], "error": [PASS]}, False),
        ({}, {"passed": [PASS], "skipped": [PASS]}, False),
        ({"markexpr": ""}, {"passed": [PASS]}, False),
        ({"keyword": "exact"}, {"passed": [PASS]}, False),
        ({"deselect": ["tests/kernels/test_gpu.py"]}, {"passed": [PASS]}, False),
        ({"file_or_dir": ["tests/kernels/test_gpu.py"]}, {"passed": [PASS]}, False),
        ({"lf": True}, {"passed": [PASS]}, False),
    ],
)
def test_only_a_whole_pass_on_a_gpu_is_recorded(options, stats, written, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(build, "architecture_name", lambda index: "sm_90")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: "NVIDIA H100")
    monkeypatch.setattr(build, "cupy", lambda: SimpleNamespace(__version__="14.2"))
    monkeypatch.setattr(ledger, "device_name", lambda: "GPU of this test")
    monkeypatch.setattr(ledger, "output_path", lambda name, output: tmp_path / f"{name}.json")
    chosen = {"markexpr": "gpu", "keyword": "", "deselect": None, "file_or_dir": [], "lf": False}
    config = SimpleNamespace(option=SimpleNamespace(**chosen | options))
    path = tmp_path / "gpu-tests-sm_90.json"
    assert gpu_record(config, stats) == (path if written else None)
    assert path.exists() == written
    if written:
        entry = json.loads(path.read_text(encoding="utf-8"))
        assert entry["device"] == "GPU of this test" and entry["versions"]["cupy"] == "14.2"
        counted = {"sources": build.sources_hash(), "passed": len(stats["passed"])}
        assert entry["numbers"] == {"architecture": "sm_90"} | counted


def test_pytorch_knows_the_kernels_as_those_of_a_gpu():
    for name in (
        "conv", "conv_grad_input", "conv_grad_weight", "conv_backward", "softmax_conv",
        "softmax_conv_backward", "talk_conv", "talk_conv_backward", "cumulative_mean",
        "cumulative_mean_backward",
    ):  # fmt: skip
        assert torch._C._dispatch_has_kernel_for_dispatch_key(f"dynconv::{name}", "CUDA")


@pytest.fixture
def on_cpu():
    """The operators that have only CUDA kernels, registered for the CPU as well: simulated."""
    if simulate.why_unavailable():
        pytest.skip(simulate.why_unavailable())
    library = torch.library.Library("dynconv", "IMPL")
    for function in (simulate.kernels.softmax_conv, simulate.kernels.softmax_conv_backward):
        library.impl(function.__name__, function, "CPU")
    yield
    library._destroy()


def test_softmax_conv_is_an_operator_of_pytorch(on_cpu):
    """Schema, fake tensors, autograd, torch.compile."""
    x = torch.randn(2, 9, 8, requires_grad=True)
    logits = torch.randn(2, 9, 2, 3, requires_grad=True)
    for seed, dropout in ((None, 0.0), (torch.tensor([5]), 0.5)):
        arguments = (x, logits, seed, dropout, 1)
        torch.library.opcheck(torch.ops.dynconv.softmax_conv.default, arguments)
    out = torch.ops.dynconv.softmax_conv(x, logits, None, 0.0, 1)
    (dx,) = torch.autograd.grad(out.square().sum(), x, create_graph=True)
    with pytest.raises(NotImplementedError, match="no second derivative: use impl='separate'"):
        dx.sum().backward()


def test_the_layer_takes_the_fused_kernel(on_cpu, monkeypatch):
    """If it runs; DropConnect is drawn at each call, and only in training."""
    from dynconv.ops import softmaxconv

    monkeypatch.setattr(softmaxconv, "cuda_ops", eager(simulate.kernels, ["softmax_conv"]))
    torch.manual_seed(0)
    layer = DynamicConv(16, 4, 3, weight_dropout=0.5)
    x = torch.randn(2, 9, 16)
    plain = layer.eval()(x)
    operator, fused = softmaxconv.OPERATOR, softmaxconv.softmax_conv_cuda
    every = dict.fromkeys(operator.implementations, fused)
    monkeypatch.setattr(softmaxconv, "OPERATOR", operator._replace(implementations=every))
    torch.testing.assert_close(layer(x), plain)
    layer.train()
    torch.manual_seed(1)
    one, two = layer(x), layer(x)
    torch.manual_seed(1)
    assert torch.equal(layer(x), one) and not torch.allclose(one, two)
    one.sum().backward()
    assert all(z.grad.isfinite().all() for z in layer.parameters())
