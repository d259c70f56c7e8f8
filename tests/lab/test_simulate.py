"""CUDA on the CPU: kernels compute the right results, and each mistake is named."""

import os
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from dynconv.kernels import compiler
from dynconv.kernels.cuda import build
from dynconv.lab import simulate
from dynconv.lab.simulate import CompileError, KernelFault, Module, simulator

if simulate.why_unavailable():
    pytest.skip(simulate.why_unavailable(), allow_module_level=True)

ORDERS = ("forward", "backward", 0, 1)

RIGHT, WRONG = (
    (Path(__file__).parent / "cuda" / name).read_text("utf-8") for name in ("right.cu", "wrong.cu")
)
NAMES = (
    "saxpy<float>",
    "saxpy<double>",
    "saxpy<unsigned short>",
    "block_sum",
    "scan<100>",
    "where",
)
NAMES += ("warp_functions", "small_functions", "packs", "stale", "who")

HUGE = """
__global__ void f(char* y) {
    char a[200000];
    for (char& c : a) c = y[1]++;
    y[0] = a[y[2]];
}
"""


@pytest.fixture
def threads(request) -> int:
    """Set PyTorch's number of threads during a test."""
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def good() -> Module:
    return Module(RIGHT, NAMES)


@pytest.fixture(scope="module")
def bad() -> Module:
    return Module(WRONG, re.findall(r"void (\w+)", WRONG))


@pytest.fixture(scope="module")
def tensor_cores() -> Module:
    code = (Path(__file__).parent / "cuda/tensor_cores.cu").read_text("utf-8")
    names = "product<bfloat16>", "product<float16>", "matrices", "transposed"
    names += "two_places", "some_lanes", "rows_of"
    return Module(f'{build.inline_headers("number.cuh")}\n#line 1 "kernel.cu"\n{code}', names)


def at(array: np.ndarray) -> np.uint64:
    return np.uint64(array.ctypes.data)


def fault(module: Module, name: str, n: int, block=(64,), grid=(1,), **options) -> str:
    """The message of the fault in which the kernel ends."""
    y = np.ones(64, np.float32)
    with pytest.raises(KernelFault) as caught:
        module.get_function(name)(grid, block, (at(y), np.int32(n)), **options)
    assert "\n" not in str(caught.value) and str(caught.value).startswith(name)
    return str(caught.value)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("T", [np.float32, np.float64, np.uint16])
def test_a_guarded_kernel_of_each_type(good, T, order):
    name = {np.float32: "float", np.float64: "double", np.uint16: "unsigned short"}[T]
    x, y = np.arange(1000, dtype=T), np.arange(1000, dtype=T)[::-1].copy()
    expected, padded = 3 * x + y, np.append(y, T(7))  # the guard keeps the last as it is
    args = (np.float32(3), at(x), at(padded), np.int32(1000))
    good.get_function(f"saxpy<{name}>")((8,), (128,), args, order=order)
    np.testing.assert_array_equal(padded, np.append(expected, T(7)))


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("threads", [32, 96, 256])
def test_a_block_sums_right_in_any_order_of_threads(good, threads, order):
    x, out = np.random.default_rng(0).random(1000, np.float32), np.zeros(1, np.float32)
    grid = (-(-1000 // threads),)
    good.get_function("block_sum")(grid, (threads,), (at(x), at(out), np.int32(1000)), order=order)
    np.testing.assert_allclose(out[0], x.sum(), rtol=1e-5)  # another order of the sum


@pytest.mark.parametrize("order", ORDERS)
def test_scan_through_dynamic_shared_memory(good, order):
    x = np.random.default_rng(0).integers(0, 9, (7, 100)).astype(np.float64)
    y = np.empty_like(x)
    good.get_function("scan<100>")((7,), (100,), (at(x), at(y)), shared_mem=800, order=order)
    np.testing.assert_array_equal(y, x.cumsum(1))


@pytest.mark.parametrize("threads", [1, 4], indirect=True)
def test_grids_and_blocks_of_more_dimensions(good, threads):
    y = np.full((4, 3, 2, 6, 5), -1, np.int32)
    good.get_function("where")((2, 3, 4), (5, 6), (at(y),))
    z, j, i, v, u = np.indices(y.shape)
    np.testing.assert_array_equal(y, i + 10 * j + 100 * z + 1000 * u + 10000 * v)


@pytest.mark.parametrize("order", ORDERS)
def test_functions_of_a_warp(good, order):
    out, x, y = np.empty((7, 32), np.int32), np.random.rand(32), np.empty(32)
    good.get_function("warp_functions")((1,), (32,), (at(out), at(x), at(y)), order=order)
    t = np.arange(32)
    assert out[0].tolist() == (t // 8 * 8 + 5).tolist()
    assert out[1].tolist() == np.where(t % 16 < 3, t, t - 3).tolist()
    assert out[2].tolist() == np.where(t % 16 + 3 < 16, t + 3, t).tolist()
    assert out[3].tolist() == (t ^ 20).tolist()
    assert set(out[4].tolist()) == {np.int32(np.uint32(sum(1 << i for i in range(0, 32, 3))))}
    assert set(out[5].tolist()) == {1 + 4}
    # Lanes 8 to 11 ask for a lane that the mask does not name: nobody knows what a GPU gives them.
    assert out[6].tolist() == [*range(4, 12), -1, -1, -1, -1, *(t[12:] ^ 1)]
    assert y.tolist() == x[::-1].tolist()


def test_the_last_warp_may_be_smaller(good, bad):
    y, sums = np.zeros(64, np.float32), np.zeros(1, np.float32)
    bad.get_function("half_shuffle")((1,), (40,), (at(y), np.int32(32)))
    assert y[0] == 1
    good.get_function("block_sum")((1,), (40,), (at(y), at(sums), np.int32(40)))
    assert np.isnan(sums[0])  # nobody knows what lanes that are not there would add


def test_functions_of_one_thread(good):
    out, raw = np.full(5, 0.5, np.float32), np.empty(3, np.uint32)
    most = np.zeros(2, np.int32)
    good.get_function("small_functions")((1,), (32,), (at(out), at(raw), at(most)))
    assert out.tolist() == [2 + 4 + 3, 1 + 2 + 1 + 2 + 2.5 + 7, 0.25 + 1 + 10 + 0.5, 0.5, 1 - 2]
    assert raw.tolist() == [0x3F800000, 0xC0000000, 16] and most.tolist() == [31, -20]


def test_shared_memory_is_seen_through_pointers_of_any_type(good):
    out = np.zeros(4, np.float32)
    good.get_function("packs")((1,), (1,), (at(out),), shared_mem=48)
    assert out[[0, 1, 3]].tolist() == [4 + 3 + 2 + 1, 7 + 100 + 200, 7] and np.isnan(out[2])


@pytest.mark.parametrize("threads", [1, 3], indirect=True)
def test_blocks_are_spread_over_threads(good, threads):
    ids = np.zeros(20, np.uint64)
    good.get_function("who")((20,), (1,), (at(ids),))
    assert len(set(ids.tolist())) == threads


@pytest.mark.parametrize("threads", [1, 2], indirect=True)
def test_shared_memory_is_nan_before_each_block(good, threads):
    out = np.zeros(200, np.float32)
    good.get_function("stale")((100,), (1,), (at(out),), shared_mem=24)
    seen = out if sys.platform == "linux" else out[1::2]  # static memory is found on Linux alone
    assert np.isnan(seen).all()


def test_a_missing_barrier_shows_in_another_order(bad):
    answers = []
    for order in ("forward", "backward"):
        y = np.empty(64, np.float32)
        bad.get_function("no_barrier")((1,), (64,), (at(y), np.int32(64)), order=order)
        answers.append(y)
    expected = (np.arange(64) + 1) % 64
    assert (answers[0] == expected).sum() == 1 and (answers[1] == expected).sum() == 63


def test_seeds_give_different_orders_and_the_same_again(bad):
    answers = []
    for order in (0, 1, 0):
        y = np.empty(64, np.float32)
        bad.get_function("no_barrier")((1,), (64,), (at(y), np.int32(64)), order=order)
        answers.append(np.isnan(y).tolist())
    assert answers[0] == answers[2] != answers[1] and 16 < sum(answers[0]) < 48


# A kernel, its n, and what its fault says in whatever order the threads of the block run.
FAULTS = [
    ("some_leave", 40, "thread (0, 0, 0) waits at __syncthreads(), kernel.cu:9"),
    ("some_leave", 40, "thread (40, 0, 0) has returned from the kernel"),
    ("leave_later", 40, "thread (40, 0, 0) has returned"),
    ("two_barriers", 40, "thread (0, 0, 0) waits at __syncthreads(), kernel.cu:12"),
    ("two_barriers", 40, "thread (40, 0, 0) waits at __syncthreads(), kernel.cu:14"),
    ("half_shuffle", 16, "thread (0, 0, 0) waits at __shfl_sync(), kernel.cu:17"),
    ("half_shuffle", 16, "thread (16, 0, 0) waits at __syncthreads(), kernel.cu:18"),
    ("left_shuffle", 40, "thread (32, 0, 0) waits at __syncwarp(), kernel.cu:22"),
    ("left_shuffle", 40, "names lane 8"),
    ("left_shuffle", 40, "thread (40, 0, 0) has returned"),
    ("not_in_mask", 0, "mask 0000000f, which lacks its own lane"),
    ("not_in_mask", 0, "kernel.cu:24"),
    ("two_masks", 16, "mask ffff0001"),
    ("two_masks", 16, "mask ffffffff"),
    ("two_masks", 16, "kernel.cu:26"),
    ("two_functions", 16, "__syncwarp(), kernel.cu:29"),
    ("two_functions", 16, "__ballot_sync(), kernel.cu:30"),
    ("odd_width", 12, "width 12"),
    ("fixed", 8, "index 8 of an array of type 'float [8]', kernel.cu:47"),
    ("fixed", -2, "index -2 of an array of type 'float [8]', kernel.cu:47"),
    ("registers", 1, "index 4 of an array of type 'float [4]', kernel.cu:53"),
    ("unsigned_index", 2**31 - 1, "index 2147483647 of an array of type 'float [5]'"),
    ("unsigned_index", -1, "index 4294967295 of an array of type 'float [5]', kernel.cu:58"),
]
FIRST = {"not_in_mask": 4, "fixed": 0, "registers": 0, "unsigned_index": 0}
"""the first thread that makes a mistake"""


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("name", "n", "words"), FAULTS)
def test_a_fault_names_its_cause_and_place(bad, name, n, words, order):
    text = fault(bad, name, n, order=order)
    assert words in re.sub(r"(\w)\[", r"\1 [", text)  # Clang writes float[8]
    if order == "forward" and name in FIRST:
        assert f"block (0, 0, 0): thread ({FIRST[name]}, 0, 0)" in text


def test_a_lane_outside_the_mask_gives_nan(bad):
    y = np.zeros(64, np.float32)
    bad.get_function("outside_mask")((1,), (64,), (at(y), np.int32(6)))
    assert np.isnan(y[2:4]).all() and y[[0, 1, 4, 5]].tolist() == [1] * 4


@pytest.mark.parametrize("n", [64, 65, -1, 2**31 - 1, -(2**31)])
def test_dynamic_shared_memory_ends(bad, n):
    text = fault(bad, "element", n, grid=(3, 2), shared_mem=256)
    assert f"element {n} of 4 bytes" in text and f"bytes {4 * n} to {4 * n + 3}" in text
    assert "block (0, 0, 0): thread (3, 0, 0)" in text and "shared_mem=256" in text
    assert "shared_mem=3 " in fault(bad, "element", 0, shared_mem=3)
    y = np.zeros(1, np.float32)
    bad.get_function("element")((1,), (64,), (at(y), np.int32(63)), shared_mem=256)


def test_vectors_in_dynamic_shared_memory(bad):
    y = np.zeros(1, np.float32)
    bad.get_function("pack")((1,), (1,), (at(y), np.int32(60)), shared_mem=256)
    assert np.isnan(y[0])
    for n in (61, 62, 63):  # the first byte is inside, the last is not
        assert f"bytes {4 * n} to {4 * n + 15}" in fault(bad, "pack", n, shared_mem=256)
    for n in (1, 2, 3, 5):
        text = fault(bad, "pack", n, shared_mem=256)
        assert "misaligned" in text and f"16 bytes at once from byte {4 * n} of" in text


@pytest.mark.parametrize("threads", [1, 3], indirect=True)
def test_a_fault_in_one_block_fails_the_launch(bad, threads):
    text = fault(bad, "one_block", 9, (4, 2), grid=(1, 5, 1), shared_mem=36)
    assert text.startswith("one_block, block (0, 2, 0): thread (0, 0, 0) ")


@pytest.mark.parametrize("threads", [1], indirect=True)
def test_no_block_starts_after_a_fault(bad, threads):
    y = np.zeros(5, np.float32)
    with pytest.raises(KernelFault):
        bad.get_function("one_block")((1, 5), (1,), (at(y), np.int32(9)), shared_mem=36)
    assert y.tolist() == [5, 5, 0, 0, 0]


def test_a_module_is_usable_after_a_fault(bad, good):
    for _ in range(3):
        fault(bad, "some_leave", 40)
        y = np.zeros(64, np.float32)
        bad.get_function("fixed")((1,), (1,), (at(y), np.int32(0)))
        assert y[0] == 1
    test_a_block_sums_right_in_any_order_of_threads(good, 96, "forward")


def places() -> tuple:
    """Row and column of each number in the fragments of mma.m16n8k16, by the PTX manual's formulas.

    Section "Matrix Fragments for mma.m16n8k16 with floating point type": for lane and i of a_i, b_i
    and c_i, with groupID = lane >> 2 and threadID_in_group = lane % 4.
    """
    group, thread = np.arange(32)[:, None] >> 2, np.arange(32)[:, None] % 4
    i = np.arange(8)
    first = (i < 2) | ((4 <= i) & (i < 6))
    a = np.where(first, group, group + 8), thread * 2 + (i & 1) + np.where(i < 4, 0, 8)
    i = np.arange(4)
    b = thread * 2 + (i & 1) + np.where(i < 2, 0, 8), group + 0 * i
    c = np.where(i < 2, group, group + 8), thread * 2 + (i & 1)
    return a, b, c


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_a_product_of_fragments(tensor_cores, dtype, order):
    """Of whole numbers, whose products and sums are exact."""
    random = np.random.default_rng(0)
    A, B, C = (random.integers(-99, 99, size) for size in ((16, 16), (16, 8), (16, 8)))

    def words(matrix: np.ndarray, place: tuple) -> np.ndarray:
        return torch.from_numpy(matrix[place]).to(dtype).view(torch.int16).numpy().view(np.uint32)

    a, b, c = places()
    for warps in (1, 2):  # in the second, with other numbers
        left, right = [words(A, a)], [words(B, b)]
        left, right = left + [words(-A, a)] * (warps - 1), right + [words(B, b)] * (warps - 1)
        left, right, sums = map(np.concatenate, (left, right, [C[c].astype(np.float32)] * warps))
        kernel = tensor_cores.get_function(f"product<{str(dtype)[6:]}>")
        kernel((1,), (32 * warps,), (at(left), at(right), at(sums)), order=order)
        np.testing.assert_array_equal(sums[:32], (C + A @ B)[c])
        np.testing.assert_array_equal(sums[32:], (C - A @ B)[c] if warps == 2 else sums[:0])


@pytest.mark.parametrize("order", ORDERS)
def test_matrices_from_shared_memory(tensor_cores, order):
    """Lane 8 m + i names row i of matrix m, and gets of each matrix a word of row lane / 4."""
    numbers = np.arange(512, dtype=np.uint16)
    start = np.random.default_rng(0).permutation(64)[:32].astype(np.int32) * 8
    words = np.zeros((32, 4), np.uint32)
    kernel = tensor_cores.get_function("matrices")
    kernel((1,), (32,), (at(numbers), at(start), at(words)), shared_mem=1024, order=order)
    rows = numbers.reshape(64, 8)[start // 8].reshape(4, 8, 8)  # matrix, row, column
    group, thread = np.arange(32) >> 2, np.arange(32) % 4
    expected = rows[:, group[:, None], 2 * thread[:, None] + np.arange(2)]  # matrix, lane, half
    halves = words.view(np.uint16).reshape(32, 4, 2)
    np.testing.assert_array_equal(halves, expected.transpose(1, 0, 2))


@pytest.mark.parametrize("order", ORDERS)
def test_a_matrix_transposed(tensor_cores, order):
    """Lane 4 g + q gives two neighbours of row g, and gets two of column g."""
    matrix = np.arange(64, dtype=np.uint16).reshape(8, 8)
    words = matrix.view(np.uint32).ravel().copy()
    tensor_cores.get_function("transposed")((1,), (32,), (at(words),), order=order)
    np.testing.assert_array_equal(words.view(np.uint16).reshape(8, 8), matrix.T)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    ("name", "n", "block", "words"),
    [
        ("two_places", 9, 32, "must call the same function with the same mask, at the same place"),
        ("some_lanes", 9, 32, "thread (9, 0, 0) has returned from the kernel"),
        ("some_lanes", 64, 40, "calls mma_m16n8k16(), kernel.cu:34, in a warp of 8 lanes"),
        ("rows_of", 9, 32, "(3, 0, 0) uses 16 bytes at once from byte 18 of"),
        ("rows_of", 249, 32, "(3, 0, 0) uses bytes 498 to 513 of"),
    ],
)
def test_what_tensor_cores_leave_undefined(tensor_cores, name, n, block, words, order):
    assert words in fault(tensor_cores, name, n, block=(block,), shared_mem=512, order=order)


X = np.zeros(4, np.float32)


@pytest.mark.parametrize(
    ("position", "value", "words"),
    [
        (3, np.int64(4), r"int64 \(8 bytes\).* integer of 4 bytes"),
        (1, np.int32(4), r"int32 \(4 bytes\).* pointer of 8 bytes"),
        (0, np.float64(4), r"float64 \(8 bytes\).* of 4 bytes"),
        (0, np.int32(4), "int32 .* floating-point"),
        (3, np.float32(4), "float32 .* an integer"),
        *((3, value, "<class ") for value in (4, 4.0, X, None)),
    ],
)
def test_arguments_must_be_those_of_the_kernel(good, position, value, words):
    saxpy, arguments = (
        good.get_function("saxpy<float>"),
        [np.float32(1), at(X), at(X), np.uint32(4)],
    )
    saxpy((1,), (4,), arguments)
    with pytest.raises(KernelFault, match="takes 4 arguments, not 3"):
        saxpy((1,), (4,), arguments[:3])
    arguments[position] = value
    error = KernelFault if isinstance(value, np.generic) else TypeError
    with pytest.raises(error, match=rf"args\[{position}\] is {words}"):
        saxpy((1,), (4,), arguments)


@pytest.mark.parametrize(
    "grid, block, shared, words",
    [
        ((1,), (1025,), 0, "block"),
        ((1,), (32, 33), 0, "1056 threads"),
        ((1,), (1, 1, 65), 0, "block"),
        ((1,), (0,), 0, "block"),
        ((1,), (), 0, "block"),
        ((1,), (1, 1, 1, 1), 0, "block"),
        ((0,), (1,), 0, "grid"),
        ((1, -1), (1,), 0, "grid"),
        ((1, 65536), (1,), 0, "grid"),
        ((1, 1, 65536), (1,), 0, "grid"),
        ((2**31,), (1,), 0, "grid"),
        ((1,), (1,), 232449, "232448"),
        ((1,), (1,), -1, "232448"),
    ],
)
def test_limits_of_a_launch(good, grid, block, shared, words):
    with pytest.raises(KernelFault, match=words):
        good.get_function("stale")(grid, block, (np.uint64(0),), shared_mem=shared)


def test_the_largest_launch_fits(good):
    y = np.zeros(2, np.float32)
    good.get_function("stale")((1,), (1,), (at(y),), shared_mem=232448)
    x = np.ones(1024, np.float32)
    for block in ((1024,), (512, 2)):
        y[:] = 0
        good.get_function("block_sum")((1,), block, (at(x), at(y), np.int32(1024)))
        assert y[0] == 1024


@pytest.mark.parametrize("order", ["sideways", -1])
def test_an_unknown_order(good, order):
    with pytest.raises(ValueError, match="'forward', 'backward'"):
        good.get_function("where")((1,), (1,), (np.uint64(0),), order=order)


def test_an_unknown_function(good):
    with pytest.raises(ValueError, match="'scan<10>'.* 'scan<100>'"):
        good.get_function("scan<10>")


@pytest.mark.parametrize(
    "code, name, words",
    [
        ("\n\n__global__ void f() { int a = b; }", "f", "^kernel.cu:3:.*'b'"),
        ("__global__ void f() {}", "g", "^names:1.*'g'"),
        ("__global__ void f() {\nshort s = 1;\n__shfl_sync(~0u, s, 0); }", "f", "kernel.cu:3.*"),
        ("__global__ void f() { __shfl_sync(~0u, short(1), 0); }", "f", "values of 4 or 8 bytes"),
        ("__global__ void f(float* y) { extern __shared__ float s[]; y[0] = s[0]; }", "f", ":1:"),
        ("__device__ int g();\n__global__ void f(int* y) { y[0] = g(); }", "f", "undefined"),
        (HUGE, "f", "frame"),
    ],
    ids=["line", "name", "short", "reason", "extern", "undefined", "stack"],
)
def test_what_does_not_compile(code, name, words):
    with pytest.raises(CompileError, match=words) as caught:
        Module(code, [name])
    assert "\n" not in str(caught.value)


def test_a_library_is_compiled_once(monkeypatch):
    code = f"__global__ void f(int* y) {{ y[0] = 4; }}  // {os.urandom(8).hex()}"
    Module(code, ["f"])
    monkeypatch.setattr(
        simulator, "compile_or_raise", lambda command: pytest.fail("compiled again")
    )
    y = np.zeros(1, np.int32)
    Module(code, ["f"]).get_function("f")((1,), (1,), (at(y),))
    assert y[0] == 4
    with pytest.raises(pytest.fail.Exception):
        Module(code, ["f", "f"])


def test_a_cached_library_that_cannot_be_loaded_is_compiled_again(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    simulator.require_toolchain()  # its probe may be cached elsewhere
    before = set(tmp_path.rglob("*.so"))
    code = f"__global__ void f(int* y) {{ y[0] = 4; }}  // {os.urandom(8).hex()}"
    Module(code, ["f"])
    (path,) = set(tmp_path.rglob("*.so")) - before
    path.unlink()
    foreign = tmp_path / "foreign"
    foreign.write_bytes(b"a library of another machine")
    foreign.rename(compiler.with_checksum(path.with_stem(path.stem.rpartition("-")[0]), foreign))
    y = np.zeros(1, np.int32)
    Module(code, ["f"]).get_function("f")((1,), (1,), (at(y),))
    assert y[0] == 4
    assert set(tmp_path.rglob("*.so")) - before == {path}


def test_modules_do_not_share_memory_of_equal_names():
    code = "template <int N> __global__ void f(int* y) { __shared__ int a[%s]; y[0] = sizeof a; "
    code += "for (int i = 0; i < %s; ++i) a[i] = i; __syncthreads(); y[1] = a[y[1]]; }"
    for size in (8, 5000):
        y = np.array([0, size - 1], np.int32)
        Module(code % (size, size), ["f<1>"]).get_function("f<1>")((1,), (1,), (at(y),))
        assert y.tolist() == [4 * size, size - 1]


@pytest.mark.parametrize("compiler", ["no-such-compiler", "false"])
def test_without_a_compiler_the_remedy_is_named(compiler, monkeypatch):
    monkeypatch.setenv("CXX", compiler)
    monkeypatch.setattr(simulator, "require_toolchain", simulator.require_toolchain.__wrapped__)
    reason = simulate.why_unavailable.__wrapped__()
    assert compiler in reason and "apt install g++" in reason
