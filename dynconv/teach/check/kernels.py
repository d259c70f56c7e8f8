"""Checks the exercises on CUDA kernels, which the simulator runs on the CPU."""

from collections.abc import Iterator
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from dynconv import ops
from dynconv.kernels.cuda import build
from dynconv.lab.simulate.trace import traffic
from dynconv.teach.check.simulated import ORDERS, GuardedLaunch, compile_answer, judge_launch
from dynconv.teach.judge import Wrong, label_sizes, labelled

SIGNATURE = (
    "__global__ void depthwise(const float* x, const float* weight, float* out, "
    "int B, int C, int T, int K, int pad)"
)
PARAMETERS = [("p", 8)] * 3 + [("i", 4)] * 5
DEPTHWISE = (  # B, C, T, K, pad; blocks, threads of each
    ((1, 1, 8, 3, 1), 1, 8),  # a thread for each number
    ((1, 1, 9, 5, 4), 1, 9),
    ((2, 3, 7, 3, 0), 1, 42),
    ((2, 3, 7, 5, 2), 2, 32),  # surplus threads
    ((2, 3, 7, 5, 2), 5, 33),  # surplus blocks
    ((2, 5, 33, 4, 1), 3, 32),  # too few threads
    ((3, 2, 5, 9, 4), 1, 1),  # K > T
)


def depthwise_kernel(code: str) -> None:
    """Check that `code` is CUDA source with the kernel of SIGNATURE, right for every grid size.

    x and out (B, C, T), weight (C, K): out[b, c, t] = sum_j weight[c, j] x[b, c, t + j - pad]
    """
    kernel = compile_answer(code, "depthwise", SIGNATURE)
    if kernel.parameters != PARAMETERS:
        raise Wrong(f"its parameters differ from {SIGNATURE}")
    for (B, C, T, K, pad), blocks, threads in DEPTHWISE:
        seed = torch.Generator().manual_seed(K)
        x, weight = (torch.randn(size, generator=seed) for size in ((B, C, T), (C, K)))
        inputs = {"x": x, "weight": weight}
        given = GuardedLaunch((blocks,), (threads,), inputs, "out", (B, C, T), (B, C, T, K, pad))
        sizes = label_sizes(B=B, C=C, T=T, K=K, pad=pad)
        label = f"{sizes}, blocks {blocks}, threads of each {threads}"
        with labelled(label):
            judge_launch(
                kernel,
                given,
                depthwise(x, weight, pad),
                partial(depthwise_faults, pad=pad),
                explain=partial(explain_ends, pad=pad),
                tolerance=(1e-4, 1e-5),
                orders=ORDERS[:3],
            )
            if blocks == 3:
                check_made_once(code, given)
    print(f"right: {len(DEPTHWISE)} launches, each with its threads in 3 orders")


def check_made_once(code: str, given: GuardedLaunch) -> None:
    """Raise `Wrong` if two threads compute the same output, which is right but slow."""
    accesses = given.trace(code, "depthwise")
    written = accesses[accesses["write"] & (accesses["array"] == 2)]
    made, expected = len(np.unique(written[["block", "thread", "index"]])), np.prod(given.shape)
    if made != expected:
        raise Wrong(
            f"right, but the threads make {made} numbers where out has {expected}: from one number "
            "of a thread to its next it is gridDim.x * blockDim.x"
        )


def depthwise(x: Tensor, weight: Tensor, pad: int) -> Tensor:
    """Return the convolution of x (B, C, T)."""
    return ops.depthwise_conv(x.mT, weight, pad_left=pad, impl="loop").mT


def depthwise_faults(x: Tensor, weight: Tensor, pad: int) -> Iterator:
    """Yield what common mistakes return."""
    (B, C, T), K = x.shape, weight.shape[1]
    yield "the taps are reversed", depthwise(x, weight.flip(1), pad)
    zeros = "pad counts zeros before position 0, not after the end"
    yield zeros, depthwise(x, weight, K - 1 - pad)
    rows = "weight is (C, K): the taps of a channel lie side by side"
    yield rows, depthwise(x, weight.view(K, C).T, pad)
    own = "every channel has its own K weights"
    yield own, depthwise(x, weight[:1].expand(C, K), pad)
    turned = depthwise(x.view(B, T, C).mT, weight, pad).mT.reshape(B, C, T)
    yield "x is (B, C, T): time is the contiguous axis", turned


def explain_ends(out: Tensor, right: Tensor, x: Tensor, weight: Tensor, pad: int) -> str:
    """Return an explanation if `out` is wrong only where taps leave the sequence."""
    T, K = x.shape[2], weight.shape[1]
    inside = slice(pad, T - (K - 1 - pad))
    if T < K or not torch.allclose(out[..., inside], right[..., inside], 1e-4, 1e-5):
        return ""
    return "it is right where no tap leaves the sequence: beyond its ends x counts as 0"


WEIGHT_TILE = "weight_tile<double>"
TILES = {  # what a fault here, and in no case before, is about; B, T, H, R, K, pad, N
    "the plain sum, without a halo": (1, 8, 1, 32, 1, 0, 8),
    "the halo at the ends of a sentence, where rows count as 0": (1, 8, 1, 32, 5, 2, 8),
    "the halo between two blocks": (1, 16, 1, 32, 5, 3, 8),
    "more taps than rows of threads": (1, 16, 1, 32, 11, 5, 8),
    "the tail, a last block with fewer than N positions": (1, 13, 1, 32, 5, 2, 8),
    "a second sentence": (2, 13, 1, 32, 5, 2, 8),
    "heads, whose channels leave lanes idle": (2, 13, 3, 20, 5, 2, 8),
}
TRACED = (1, 64, 1, 32, 11, 5, 32)


def weight_gradient_kernel(source: str) -> None:
    """Check the kernel weight_tile, the first stage of the gradient of LightConv's weights.

    template <typename Number> __global__ void weight_tile(const Number* g, const Number* x,
        Number* partial, int T, int C, int H, int K, int pad, int N)

    g and x are (B, T, C), partial is (B * tiles, H, K) with tiles = ceil(T / N). The grid is
    (H, tiles, B), a block (32, 8), and its dynamic shared memory 2 (N + K) - 1 rows of 32 numbers.
    """
    header = build.inline_headers("number.cuh")
    source = source.removeprefix(header) if isinstance(source, str) else source
    before = f'{header}#line 1 "your source"\n'
    kernel = compile_answer(source, WEIGHT_TILE, before=before)
    for what, case in TILES.items():
        label = label_sizes(**dict(zip(("B", "T", "H", "R", "K", "pad", "N"), case, strict=True)))
        with labelled(f"{what} ({label})"):
            judge_launch(kernel, *exercise_launch(*case))
    *_, K, _, N = TRACED
    given, _ = exercise_launch(*TRACED)
    loads = traffic(given.trace(before + source, WEIGHT_TILE))
    counts = [loads[i].loaded / x.nbytes for i, x in enumerate(given.inputs.values())]
    for name, needed, count in zip("gx", (1, (N + K - 1) / N), counts, strict=True):
        if count > 1.5 * needed:
            raise Wrong(
                f"the sums are right, but a number of {name} is loaded {count:.2g} times from "
                f"global memory, at N = {N} and K = {K}; a tile needs {needed:.2g}"
            )
    print(
        f"right: {len(TILES)} cases in {len(ORDERS)} orders; loads of each number: "
        f"{counts[0]:.2g} of g, {counts[1]:.2g} of x, at N = {N} and K = {K}"
    )


def exercise_launch(
    B: int, T: int, H: int, R: int, K: int, pad: int, N: int
) -> tuple[GuardedLaunch, Tensor]:
    """Return a launch of weight_tile, and the right partial sums (B * tiles, H, K)."""
    seed = torch.Generator().manual_seed(T)
    g, x = torch.randn(2, B, T, H * R, generator=seed, dtype=torch.float64)
    tiles = -(-T // N)
    padded = F.pad(x, (0, 0, pad, K - 1 - pad))
    products = g[..., None] * padded.unfold(1, K, 1)  # (B, T, C, K)
    products = F.pad(products, (0, 0, 0, 0, 0, tiles * N - T))
    whole = products.unflatten(1, (tiles, N)).unflatten(3, (H, R))
    right = whole.sum(dim=(2, 4)).flatten(0, 1)
    shared = (2 * (N + K) - 1) * 32 * 8
    inputs, numbers = {"g": g, "x": x}, (T, H * R, H, K, pad, N)
    grid = (H, tiles, B)
    return GuardedLaunch(grid, (32, 8), inputs, "partial", right.shape, numbers, shared), right


SCANS = ((1, 32), (33, 32), (64, 32), (100, 64), (200, 64), (1000, 96), (3000, 1024))
"""lengths of a row, and threads of a block"""
SCAN_SIGNATURE = """
static_assert(__is_same(decltype(&chunked_scan), void (*)(const float*, float*, int)),
              "chunked_scan takes (const float* x, float* sums, int T)");
"""


def chunked_scan_kernel(source: str) -> None:
    """Check `source`, CUDA with the kernel chunked_scan(const float* x, float* sums, int T).

    x and sums (rows, T); block b, of a multiple of 32 threads, computes the prefix sums of row b:
    sums[b, t] = x[b, 0] + ... + x[b, t]. T may exceed the number of threads.
    """
    kernel = compile_answer(source, "chunked_scan", after=SCAN_SIGNATURE)
    for T, threads in SCANS:
        # Sums of integers are exact in any order.
        x = torch.randint(1, 10, (3, T), generator=torch.Generator().manual_seed(T)).float()
        given = GuardedLaunch((3,), (threads,), {"x": x}, "sums", (3, T), (T,))
        with labelled(f"T = {T}, {threads} threads"):
            faults = partial(scan_faults, threads=threads)
            judge_launch(kernel, given, x.cumsum(dim=1), faults, tolerance=(0, 0))
    rows, T = 2, 40
    given = GuardedLaunch((rows,), (32,), {"x": torch.ones(rows * T + 64)}, "sums", (rows, T), (T,))
    read = given.trace(source, "chunked_scan")
    last = read["index"][read["array"] == 0].max()
    if last >= rows * T:  # where the sums do not show it
        raise Wrong(
            f"T = {T}, 32 threads: it reads x[{last}], but the last of {rows} rows ends at "
            f"x[{rows * T - 1}]: on a GPU that memory may belong to another tensor"
        )
    print(f"right: {len(SCANS)} lengths, each in {len(ORDERS)} orders of the threads")


def scan_faults(x: Tensor, threads: int) -> Iterator:
    """Yield what common mistakes return, for chunks of one element per thread."""
    right = x.cumsum(dim=1)
    before = right - x  # the sum of all that come before a number
    t = torch.arange(x.shape[1])
    chunk, warp = t // threads * threads, t // 32 * 32
    yield "it sums the tokens before t, but x[t] also belongs to it", before
    anew = (
        f"the sum begins anew with each chunk of {threads}: it lacks the carry of those before it"
    )
    yield anew, right - before[:, chunk]
    last = "the carry is the sum of the last chunk alone, not of all chunks before this one"
    yield last, right - before[:, (chunk - threads).clamp(min=0)]
    totals = "a warp lacks the totals of the block's other warps before it"
    yield totals, right - (before[:, warp] - before[:, chunk])
    one = "a warp adds the total of the warp before it alone, not of all before it"
    yield one, right - (before[:, torch.maximum(warp - 32, chunk)] - before[:, chunk])
