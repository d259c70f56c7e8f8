"""CUDA sources compiled without a GPU: what the kernels take, the errors, where NVRTC is found."""

import ctypes
import re
from importlib import metadata

import pytest

from dynconv.lab.nvidia import nvrtc

SHIFT = """
template <typename T, int N> __global__ void shift(T* x) {
    __shared__ T s[256];
    s[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = s[255 - threadIdx.x] + N;
}
"""
# Two blocks of 1024 threads: of 65536 registers, no thread has more than 32 for its 96 numbers.
SPILL = """
__global__ void __launch_bounds__(1024, 2) spill(const float* x, float* y, int n) {
    float a[96];
    #pragma unroll
    for (int i = 0; i < 96; ++i) a[i] = x[i * n + threadIdx.x];
    for (int j = 0; j < n; ++j) {
        #pragma unroll
        for (int i = 0; i < 96; ++i) a[i] = a[i] * a[(i * 7 + 1) % 96] + x[j];
    }
    #pragma unroll
    for (int i = 0; i < 96; ++i) y[i * n + threadIdx.x] = a[i];
}
"""
ONE = "__global__ void one(float* x) { x[0] = 1; }\n"
LARGE = SHIFT.replace("256", "100000")
UNDEFINED = ONE + "__global__ void two(float* x) {\n    x[0] = y;\n}\n"
TABLE = "__device__ float table[4];\n"
# As for CuPy, functions are the host's; -default-device would hide a __device__ that was forgotten.
FORGOTTEN = "float two() { return 2; }\n__global__ void f(float* x) { x[0] = two(); }"
# CUDA 12.1 names no barriers and no cumulative stack; a called function's frame follows a kernel's.
LOG = """\
ptxas info    : 304 bytes gmem
ptxas info    : Compiling entry function '_Z5spillPf' for 'sm_80'
ptxas info    : Function properties for _Z5spillPf
ptxas         .     888 bytes stack frame, 1248 bytes spill stores, 1416 bytes spill loads
ptxas info    : Used 32 registers, 1024 bytes smem, 376 bytes cmem[0]
ptxas info    : Function properties for _Z6helperff
ptxas         .     8 bytes stack frame, 16 bytes spill stores, 24 bytes spill loads
ptxas info    : Compiling entry function 'plain' for 'sm_80'
ptxas info    : Function properties for plain
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 8 registers, 360 bytes cmem[0]
"""


@pytest.fixture
def resources():
    """The function, where there is an NVRTC."""
    if reason := nvrtc.why_unavailable():
        pytest.skip(reason)
    return nvrtc.compile_program


def test_templates_and_shared_memory(resources):
    names = ["shift<float, 4>", "shift< double,2 >", "one"]
    kernels, warnings, *_ = resources(SHIFT + ONE, names)
    assert list(kernels) == names and warnings == []
    assert [kernel.shared for kernel in kernels.values()] == [1024, 2048, 0]
    for kernel in kernels.values():
        assert 0 < kernel.registers <= 32 and kernel.spilled == kernel.stack == 0


def test_a_kernel_with_c_linkage_is_found(resources):
    code = ONE.replace("__global__", 'extern "C" __global__')
    assert resources(code, ["one"]).kernels["one"].registers > 0


def test_spilled_registers(resources):
    kernel = resources(SPILL, ["spill"]).kernels["spill"]
    assert kernel.registers <= 32 and kernel.shared == 0
    # Each of the 64 numbers and more without a register is stored and loaded at least once.
    assert kernel.spilled >= 2 * 64 * 4 and kernel.stack >= 64 * 4


def test_an_array_with_a_dynamic_index_is_stack_and_not_spilled(resources):
    code = """__global__ void pick(const float* x, float* y, int n) {
        float a[400];
        for (int i = 0; i < 400; ++i) a[i] = x[i * n];
        for (int i = 0; i < n; ++i) a[n * i] += a[i];
        y[0] = a[n];
    }"""
    kernel = resources(code, ["pick"]).kernels["pick"]
    assert kernel.stack == 1600 and kernel.spilled == 0


@pytest.mark.parametrize("number", [75, 80, 90])
def test_each_architecture_is_compiled_for_its_own_number(resources, number):
    code = """__global__ void f(char* x) {
        __shared__ char s[__CUDA_ARCH__];
        s[threadIdx.x] = x[0];
        __syncthreads();
        x[1] = s[x[2]];
    }"""
    assert resources(code, ["f"], f"sm_{number}").kernels["f"].shared == 10 * number


@pytest.mark.parametrize(
    ("code", "name", "architecture", "words"),
    [
        (ONE, "one", "sm_12", "gpu-architecture.*sm_12 was.*sm_80, sm_"),
        (UNDEFINED, "one", "sm_80", r'^kernel.cu\(3\): error: identifier "y" is undefined$'),
        (LARGE, "shift<float, 1>", "sm_80", "400000 bytes smem|too much shared data"),
        (ONE, "three", "sm_80", 'identifier "three" is undefined'),
        (TABLE + ONE, "&table", "sm_80", "no resources of &table in the log for sm_80"),
        (ONE, "one", "compute_80", "no resources of one in the log for compute_80"),
        (FORGOTTEN, "f", "sm_80", r"kernel.cu\(1\): error: .*host function"),
    ],
    ids=["architecture", "line", "shared", "name", "variable", "PTX", "host"],
)
def test_what_does_not_compile(resources, code, name, architecture, words):
    """Including what would otherwise have zeros for resources, because it is not in the log."""
    with pytest.raises(nvrtc.NvrtcError, match=f"(?s){words}"):
        resources(code, [name], architecture)


def test_only_the_first_errors(resources):
    code = "".join(f"__global__ void f{i}(float* x) {{ x[0] = y{i}; }}\n" for i in range(8))
    with pytest.raises(nvrtc.NvrtcError) as error:
        resources(code, [])
    lines = str(error.value).splitlines()
    assert lines[4].startswith("kernel.cu(5): error") and lines[5:] == ["and 3 more errors"]


def test_warnings_of_the_compiler(resources):
    compiled = resources(ONE.replace("x[0]", "int unused;\n x[0]"), ["one"])
    assert compiled.kernels["one"].registers > 0
    (warning,) = compiled.warnings
    assert re.match(r'kernel.cu\(1\): warning .*"unused" was declared', warning)


def test_warnings_of_the_assembler(resources):
    (warning,) = resources(SPILL, ["spill"], "sm_75").warnings  # which has 1024 threads at most
    assert warning.startswith("ptxas warning") and "spill" in warning


@pytest.mark.parametrize(
    "code, name",
    [(ONE, "one"), (ONE, "two"), ("?", "one"), ("__device__ int one;", "&one")],
    ids=["compiled", "unknown", "error", "variable"],
)
def test_the_program_is_always_destroyed(resources, code, name, monkeypatch):
    calls, call = [], nvrtc.call_nvrtc
    monkeypatch.setattr(nvrtc, "call_nvrtc", lambda *given: (calls.append(given[0]), call(*given)))
    try:
        resources(code, [name])
    except nvrtc.NvrtcError:
        assert (code, name) != (ONE, "one")
    assert calls[0] == "nvrtcCreateProgram" and calls.count("nvrtcDestroyProgram") == 1


def test_return_codes_are_looked_at(resources):
    with pytest.raises(nvrtc.NvrtcError, match="nvrtcDestroyProgram: NVRTC_ERROR_INVALID_PROG"):
        nvrtc.call_nvrtc("nvrtcDestroyProgram", ctypes.byref(ctypes.c_void_p()))


def test_nvrtc_tells_its_version(resources):
    assert re.fullmatch(r"1\d\.\d+", nvrtc.version())


@pytest.mark.parametrize("version, cached", [("12.8", False), ("12.9", True), ("13.0", True)])
def test_nothing_is_kept(monkeypatch, version, cached):
    # A kept kernel has no log. Only with a driver is one kept, so look at the options.
    monkeypatch.setattr(nvrtc, "version", lambda: version)
    assert ("--no-cache" in nvrtc.compiler_options("sm_80")) == cached


def test_the_log_of_an_older_ptxas_is_read():
    expected = {
        "_Z5spillPf": nvrtc.Resources(registers=32, spilled=2664, stack=888, shared=1024),
        "plain": nvrtc.Resources(registers=8, spilled=0, stack=0, shared=0),
    }
    assert nvrtc.parse_log(LOG) == expected
    lines = LOG.splitlines()
    called = lines[5:7]  # elsewhere, it still says nothing of the kernel
    assert nvrtc.parse_log("\n".join([*lines[:4], *called, lines[4], *lines[7:]])) == expected
    # A log that says less is no zero.
    assert nvrtc.parse_log(LOG.replace("Used 8", "Uses 8")).keys() == {"_Z5spillPf"}
    assert nvrtc.parse_log(LOG.replace(", 1416 bytes spill loads", "")).keys() == {"plain"}


def test_missing_says_what_to_install(monkeypatch):
    monkeypatch.setattr(
        nvrtc, "load_nvrtc", nvrtc.load_nvrtc.__wrapped__
    )  # not the one in the cache
    monkeypatch.setattr(nvrtc, "library_paths", lambda: ["libnowhere.so"])
    words = r"no NVRTC \(libnowhere.so: .*pip install nvidia-cuda-nvrtc'"
    assert re.match(words, nvrtc.why_unavailable())
    with pytest.raises(nvrtc.NoNvrtcError, match=words):
        nvrtc.compile_program(ONE, ["one"])


@pytest.mark.parametrize("platform", ["win32", "darwin"])
def test_missing_on_other_systems(monkeypatch, platform):
    monkeypatch.setattr(nvrtc, "load_nvrtc", nvrtc.load_nvrtc.__wrapped__)
    monkeypatch.setattr(nvrtc.sys, "platform", platform)
    assert nvrtc.why_unavailable() == f"no NVRTC on {platform}: it is looked for on Linux only"


def test_where_it_is_found(monkeypatch, tmp_path):
    def files(package):
        if package != "nvidia-cuda-nvrtc-cu12":
            raise metadata.PackageNotFoundError(package)
        names = (".so.11", ".so.12", ".alt.so.12", "-builtins.so.12.9", "-builtins.alt.so.12.9")
        paths = [metadata.PackagePath(f"libnvrtc{name}") for name in names]
        for path in paths:
            path.dist = metadata.PathDistribution(tmp_path / "of.dist-info")
            if path.suffix != ".11":  # it was deleted
                (tmp_path / path.name).touch()
        return paths

    monkeypatch.setattr(metadata, "files", files)
    names = ("libnvrtc-builtins.so.12.9", "libnvrtc.so.12")
    assert nvrtc.library_paths() == [str(tmp_path / name) for name in names]
    monkeypatch.setattr(nvrtc, "PACKAGES", ("nvidia-cuda-nvrtc",))
    monkeypatch.setattr(ctypes.util, "find_library", lambda name: f"lib{name}.so.9")
    assert nvrtc.library_paths() == ["libnvrtc.so.9"]
    monkeypatch.setattr(ctypes.util, "find_library", lambda name: None)
    assert nvrtc.library_paths() == ["libnvrtc.so"]
