"""The trace of a kernel has each access to memory once, and its traffic is the equation's."""

from pathlib import Path

import numpy as np
import pytest
import torch

from dynconv import ops
from dynconv.dtypes import accumulator_dtype
from dynconv.kernels.cuda import build
from dynconv.kernels.cuda.grids import TILE
from dynconv.lab import simulate
from dynconv.lab.simulate import CompileError, KernelFault
from dynconv.lab.simulate.trace import request_cycles, trace, trace_launches, traffic
from dynconv.teach.launch import KernelLaunch
from dynconv.teach.widgets import BlockTrace

if simulate.why_unavailable():
    pytest.skip(simulate.why_unavailable(), allow_module_level=True)


KERNELS = (Path(__file__).parent / "cuda" / "traced.cu").read_text("utf-8")


def copied(x, y, n: int, threads: int, step: int = 1, number: str = "float") -> np.ndarray:
    """The trace of a copy of n elements."""
    grid, args = (-(-n // threads),), [x, y, np.int32(n), np.int32(step)]
    return trace(KERNELS, f"copy<{number}>", grid, (threads,), args)


def test_a_copy_is_recorded_access_by_access():
    x, y = np.arange(100, dtype=np.float32), np.zeros(100, np.float32)
    seen = copied(x, y, 100, 64)
    np.testing.assert_array_equal(x, y)
    reads, writes = seen[0::2], seen[1::2]
    i = np.arange(100)
    for a, array in ((reads, 0), (writes, 1)):
        np.testing.assert_array_equal(a["block"] * 64 + a["thread"], i)
        np.testing.assert_array_equal(a["index"], i)
        np.testing.assert_array_equal(a["offset"], 4 * i)
        fields = {"array": array, "bytes": 4, "write": array, "site": array, "nth": 0, "phase": 0}
        for field, value in fields.items():
            assert (a[field] == value).all(), field
    # Four warps, the last with four threads: 3 * 128 + 16 bytes in sectors of 32.
    assert traffic(seen) == {0: (400, 0, 400, 4, 13), 1: (0, 400, 400, 4, 13)}
    assert str(traffic(seen)[0]).endswith("touched=400, requests=4, sectors=13)")
    assert traffic(seen[~seen["write"]]) == {0: (400, 0, 400, 4, 13)}


def test_a_strided_copy_asks_for_eight_times_the_sectors():
    x, y = np.ones((2, 1024), np.float32)
    near, far = traffic(copied(x, y, 128, 128)), traffic(copied(x, y, 1024, 128, step=8))
    assert near[0] == (512, 0, 512, 4, 16) and far[0] == (512, 0, 512, 4, 128)
    assert far[1].sectors == 8 * near[1].sectors


def test_threads_that_share_bytes():
    x, y = np.ones((2, 64), np.float32)
    seen = traffic(copied(x, y, 32, 32, step=0))
    assert seen[0] == (128, 0, 4, 1, 1) and seen[1] == (0, 128, 4, 1, 1)


@pytest.mark.parametrize(
    "x, number",
    [
        (np.arange(40, dtype=np.float64), "double"),
        (np.arange(40, dtype=np.uint8), "unsigned char"),
        (torch.arange(40).to(torch.float16), "unsigned short"),
        (torch.arange(40).to(torch.bfloat16), "unsigned short"),
        (torch.arange(40.0).requires_grad_(), "float"),
    ],
)
def test_arrays_and_tensors_of_each_size(x, number):
    y = np.zeros_like(x) if isinstance(x, np.ndarray) else torch.zeros_like(x)
    seen = copied(x, y, 40, 32, number=number)
    assert (x == y).all()
    assert seen["index"].tolist() == [i for i in range(40) for _ in range(2)]
    assert (seen["bytes"] == x.itemsize).all() and traffic(seen)[0].loaded == 40 * x.itemsize
    assert traffic(seen)[0].sectors == -(-40 * x.itemsize // 32)


@pytest.mark.parametrize("B, T, C, K, pad", [(2, 7, 32, 3, 1), (1, 5, 64, 9, 8), (3, 4, 32, 4, 0)])
def test_the_first_version_loads_what_the_equation_says(B, T, C, K, pad):
    x, w = torch.randn(B, T, C), torch.randn(C, K)
    out = torch.full((B, T, C), torch.nan)
    sizes = [np.int32(n) for n in (B, T, C, C, K, pad)]
    args = [x, w, out, *sizes, np.int64(T * C), np.int64(C)]
    grid = (-(-B * T * C // 96),)  # the last block has a tail
    seen = trace(build.inline_headers("lightconv.cu"), "light_conv_v1<float>", grid, (96,), args)
    torch.testing.assert_close(out, ops.light_conv(x, w, pad_left=pad))
    inside = [s for t in range(T) for s in range(t - pad, t - pad + K) if 0 <= s < T]
    requested, lines = 4 * B * C * len(inside), B * C // 32 * len(inside)
    counts = traffic(seen)
    # A warp has 32 channels of one position: of x four sectors, of w a number each in its own row.
    assert counts[0] == (requested, 0, 4 * B * C * len(set(inside)), lines, 4 * lines)
    assert counts[1][:2] == (requested, 0) and counts[1].requests == lines
    assert counts[2] == (0, out.nbytes, out.nbytes, B * T * C // 32, B * T * C // 8)
    taps = {s - t + pad for t in range(T) for s in range(T) if 0 <= s - t + pad < K}
    assert counts[1].touched == 4 * C * len(taps)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_the_version_in_use_loads_a_row_once_for_a_tile(dtype):
    B, T, C, H, K, pad = 2, 37, 64, 2, 7, 3
    x, w = torch.randint(-3, 4, (B, T, C)).to(dtype), torch.randint(-3, 4, (H, K)).to(dtype)
    results = []
    ((name, seen),) = trace_launches(lambda kernels: results.append(kernels.conv(x, w, pad)))
    assert name.startswith("light_conv<")
    assert torch.equal(results[0], simulate.kernels.conv(x, w, pad))
    rows = sum(0 <= s < T for t in range(0, T, TILE) for s in range(t - pad, t + 7 - pad + K))
    V, tiles, counts = min(4, 16 // x.itemsize), -(-T // TILE), traffic(seen)
    assert (seen["bytes"][seen["array"] == 0] == V * x.itemsize).all()
    # One warp takes all channels of a tile; a lane that has none repeats the address of another.
    loaded, moved = B * rows * 32 * V * x.itemsize, x.nbytes
    assert counts[0] == (loaded, 0, moved, B * rows, B * rows * C * x.itemsize // 32)
    assert counts[1].loaded == B * tiles * w.nbytes
    assert counts[2] == (0, moved, moved, B * T, moved // 32)
    # A head has 32 / V lanes: there is room for V heads.
    assert counts[-1].stored == B * tiles * V * K * accumulator_dtype(dtype).itemsize


def test_kernels_that_belong_together_are_recorded_in_turn():
    x, g, w = torch.randn(1, 9, 8), torch.randn(1, 9, 8), torch.randn(2, 3)
    names, seen = zip(
        *trace_launches(lambda kernels: kernels.conv_backward(g, x, w, 1)), strict=True
    )
    assert [name.partition("<")[0] for name in names] == ["light_conv_grad", "sum_rows"]
    assert all(traffic(a)[1] for a in seen)
    means = trace_launches(lambda kernels: kernels.cumulative_mean(x))
    assert [set(a["bytes"].tolist()) for _, a in means] == [{16}, {16}]  # four channels each


def test_shared_memory_and_barriers():
    x, y = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    seen = trace(KERNELS, "flip", (1,), (64,), [x, y], shared_mem=64 * 8)
    assert y.tolist() == [2 * (63 - t) + 1 for t in range(64)]
    counts = traffic(seen)
    assert counts[-1][:3] == (64 * 12, 64 * 12, 64 * 12) and counts[-1].sectors == 0
    assert counts[0] == (256, 0, 256, 2, 8) and counts[1][:2] == (256, 512)
    of_5 = seen[seen["thread"] == 5]
    assert of_5["phase"].tolist() == [1, 1, 1, 2, 2, 2, 3, 3]
    loaded = of_5[:3][of_5["array"][:3] == 0]
    assert loaded["index"].tolist() == [5] and not loaded["write"].any()
    shared = of_5[of_5["array"] == -1]
    records = {tuple(a) for a in shared[["phase", "index", "bytes", "write"]].tolist()}
    # Words of 4 bytes: the doubles are the dynamic memory, the static tile comes after them.
    assert records == {(1, 10, 8, True), (1, 133, 4, True), (2, 10, 8, False), (2, 186, 4, False)}
    assert (shared["offset"] == 4 * shared["index"]).all()
    assert (np.diff(seen["phase"]) >= 0).all()  # all threads reach a barrier before one goes on


STRIDED = """
__global__ void strided(const float* x, float* y, int step) {
  DYNAMIC_SHARED(float, part);
  part[threadIdx.x] = x[step * threadIdx.x];
  __syncthreads();
  y[threadIdx.x] = part[step * threadIdx.x];
}
"""


@pytest.mark.parametrize(
    ("step", "from_global", "from_shared"),
    [(0, 1, 1), (1, 1, 1), (2, 2, 2), (3, 3, 1), (8, 8, 8), (32, 8, 32), (33, 8, 1)],
)
def test_cycles_of_a_request(step, from_global, from_shared):
    x, y = torch.zeros(33 * 32), torch.zeros(32)
    seen = KernelLaunch(STRIDED, "strided", (1,), (32,), (x, y, step), 4 * 33 * 32).trace()
    cycles = [request_cycles(seen[(seen["array"] == i) & ~seen["write"]]) for i in (0, -1)]
    assert [c.tolist() for c in cycles] == [[from_global], [from_shared]]
    assert request_cycles(seen).sum() == from_global + from_shared + 2  # and two stores


def test_a_kernel_of_a_lesson_may_follow_another_file_of_the_package():
    code = "__global__ void hash(unsigned* y) { *y = scramble(*y); }"
    y = torch.tensor([1], dtype=torch.int32)
    KernelLaunch(code, "hash", (1,), (1,), (y,), header="softmaxconv.cu").run()
    assert y.item() == 0x514E28B7  # MurmurHash3's


def test_vectors_are_one_access():
    x, y = np.arange(16, dtype=np.float32), np.zeros(16, np.float32)
    seen = trace(KERNELS, "vectors", (1,), (1,), [x, y])
    assert y[:10].tolist() == [4, 6, 8, 10, *range(8, 14)]
    records = {tuple(a) for a in seen[["array", "index", "bytes", "write"]].tolist()}
    reads = {(0, 0, 16, False), (0, 4, 16, False), (0, 8, 16, False), (0, 12, 8, False)}
    assert records == reads | {(1, 0, 16, True), (1, 4, 16, True), (1, 8, 8, True)}
    assert len(seen) == 7


def test_an_access_across_a_border_of_sectors():
    code = "struct Row { float v[5]; };\n__global__ void f(const Row* x, Row* y) { y[1] = x[1]; }"
    x, y = np.arange(20, dtype=np.float32), np.zeros(20, np.float32)
    seen = traffic(trace(code, "f", (1,), (1,), [x, y]))  # bytes 20 to 39
    assert seen == {0: (20, 0, 20, 1, 2), 1: (0, 20, 20, 1, 2)}


def test_places_in_grids_and_blocks_of_three_dimensions(monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)  # blocks go one by one all the same
    x = np.zeros(24 * 24, np.uint8)
    seen = trace(KERNELS, "places", (4, 3, 2), (2, 3, 4), [x])
    assert x.all() and (seen["block"] * 24 + seen["thread"] == seen["index"]).all()
    assert seen["block"].tolist() == sorted(seen["block"].tolist())


def test_sites_and_visits():
    x = np.zeros(3, np.float32)
    seen = trace(KERNELS, "twice", (2,), (2,), [x, np.int32(3)])
    for group in np.split(seen, 4):  # each thread of each block counts for itself
        assert group["site"].tolist() == [0, 0, 0, 1, 1, 1]
        assert group["nth"].tolist() == [0, 1, 2] * 2
    assert traffic(seen)[0].requests == 2 * 6


def instructions(seen: np.ndarray, array: int) -> list[list[tuple[int, int]]]:
    """Of each instruction that hits the array, the threads and their elements."""
    hits = seen[seen["array"] == array]
    sites = np.unique(hits[["step", "site", "nth"]])
    groups = [hits[hits[["step", "site", "nth"]] == each] for each in sites]
    return [sorted(zip(a["thread"].tolist(), a["index"].tolist(), strict=True)) for a in groups]


@pytest.mark.parametrize("T, K, pad", [(7, 5, 2), (3, 9, 8), (40, 3, 0)])
def test_threads_at_the_edges_wait_for_the_others(T, K, pad):
    x, w, y = np.ones(T, np.float32), np.ones(K, np.float32), np.zeros(T, np.float32)
    sizes = np.array([T, K, pad], np.int32)
    seen = trace(KERNELS, "edges", (1,), (64,), [x, w, y, *sizes])
    rounds = [[t for t in range(T) if 0 <= t + j - pad < T] for j in range(K)]
    met = [(j, threads) for j, threads in enumerate(rounds) if threads]
    assert instructions(seen, 1) == [[(t, j) for t in threads] for j, threads in met]
    assert instructions(seen, 0) == [[(t, t + j - pad) for t in threads] for j, threads in met]
    assert instructions(seen, 2) == [[(t, t) for t in range(T)]]
    warps = sum(len({t // 32 for t in threads}) for threads in rounds)
    assert traffic(seen)[1][3:] == (warps, warps)


def test_a_tile_with_its_halo_and_its_figure():
    x, y = np.arange(11, dtype=np.float32), np.zeros(11, np.float32)
    args = [x, np.ones(3, np.float32), y, *np.array([11, 3, 1], np.int32)]
    seen = trace(KERNELS, "tiled", (3,), (4,), args, shared_mem=6 * 4)
    np.testing.assert_array_equal(y, np.convolve(x, np.ones(3), "same"))
    assert traffic(seen)[0][:3] == (4 * (5 + 6 + 4), 0, 4 * 11)
    rows = [("x", 0, 11), ("tile", -1, 6), ("y", 2, 11)]
    steps = BlockTrace(seen[seen["block"] == 0], rows, halo=(1, 1)).data["steps"]
    four = [0, 1, 2, 3]
    assert steps == [  # position -1 is padding: thread 0 loads nothing, at first
        [0, 0, 0, 12, 1, [[1, 0], [2, 1], [3, 2]]],
        [0, 1, 1, 16, 1, [[t, t] for t in four]],
        [0, 0, 0, 8, 1, [[0, 3], [1, 4]]],
        [0, 1, 1, 8, 1, [[0, 4], [1, 5]]],
        *([1, 1, 0, 16, 1, [[t, t + j] for t in four]] for j in range(3)),
        [1, 2, 1, 16, 1, [[t, t] for t in four]],
    ]


def test_threads_of_different_rounds():
    seen = trace(KERNELS, "rounds", (1,), (4,), [np.zeros(100, np.float32)])
    steps = instructions(seen, 0)
    assert steps[-1] == [(t, 90 + t) for t in range(4)]
    expected = []  # in each round i, the first of each thread's rounds j, then the second ...
    for i in range(1, 5):
        lists = {t: [10 * t + i + j for j in range(t % 2, i)] for t in (0, 2, 3) if t >= i - 1}
        for n in range(max(map(len, lists.values()), default=0)):
            expected.append([(t, at[n]) for t, at in lists.items() if n < len(at)])
    assert steps[:-1] == expected


def test_calls_from_two_places_are_two_instructions():
    y = np.zeros(2, np.float32)
    seen = trace(KERNELS, "sums", (1,), (32,), [y])
    assert y.tolist() == [16, 16] and set(seen["site"].tolist()) == {0, 1, 2, 3}
    assert traffic(seen)[0] == (128, 128, 8, 4, 4)


def test_an_atomic_function_reads_and_writes():
    x, y = np.ones(40, np.float32), np.zeros(1, np.float32)
    seen = trace(KERNELS, "sum", (1,), (40,), [np.int32(2), x, y])
    assert y[0] == 80
    assert traffic(seen) == {1: (160, 0, 160, 2, 5), 2: (160, 160, 4, 4, 4)}


def test_one_array_for_two_arguments_and_none():
    x = np.arange(32, dtype=np.float32)
    seen = copied(x, x, 32, 32)
    assert set(seen["array"].tolist()) == {0} and len(seen) == 64
    nothing = trace(KERNELS, "nothing", (2,), (2,), [np.int32(1)])
    assert len(nothing) == 0 and traffic(nothing) == {}


def test_what_cannot_be_traced_is_reported_in_one_line():
    x, n = np.ones((4, 4), np.float32), np.int32(4)

    def refused(error, words, *args, code=KERNELS, name="copy<float>", **more):
        with pytest.raises(error, match=words) as caught:
            trace(code, name, (1,), (4,), args, **more)
        assert "\n" not in str(caught.value)

    refused(ValueError, r"args\[1\] is not contiguous: .*ascontiguousarray", x, x.T, n, n)
    strided = torch.ones(4, 4)[:, 1]
    refused(ValueError, r"args\[0\] is not contiguous: .*\.contiguous\(\)", strided, x, n, n)
    away = torch.ones(4, device="meta")
    refused(ValueError, r"args\[1\] is on meta, .*\.cpu\(\)", x, away, n, n)
    refused(TypeError, r"args\[2\] is <class 'int'>: pass .*np.int32", x, x, 4, n)
    refused(KernelFault, "takes 4 arguments, not 3", x, x, n)
    refused(KernelFault, r"args\[3\] is int64", x, x, n, np.int64(4))
    refused(KernelFault, "with 7 accesses and jumps: .*`limit`", x, x, n, np.int32(1), limit=7)
    refused(
        CompileError, "^kernel.cu:1:.*'missing'", code="__global__ void f() { missing; }", name="f"
    )
    fits = trace(KERNELS, "copy<float>", (1,), (4,), [x, x, n, np.int32(1)], limit=8)
    assert len(fits) == 8  # and it goes on after the faults
