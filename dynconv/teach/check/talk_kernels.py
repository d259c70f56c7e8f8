"""The check of the exercise on TaLK's kernels."""

import numpy as np
import torch
from torch import Tensor

from dynconv.kernels.simulate import Function, KernelFault
from dynconv.teach.check.compiled import compiled
from dynconv.teach.judge import Wrong
from dynconv.teach.trace import trace

CASES = ((1, 32), (33, 32), (64, 32), (100, 64), (200, 64), (1000, 96), (3000, 1024))
"""lengths of a row, and threads of a block"""

SIGNATURE = """
static_assert(__is_same(decltype(&chunked_scan), void (*)(const float*, float*, int)),
              "chunked_scan takes (const float* x, float* sums, int T)");
"""

ORDERS = ("forward", "backward", 0, 1)
GUARD = 64
"""numbers before the first row and behind the last one that nobody may touch"""


def chunked_scan_kernel(source: str) -> None:
    """source: CUDA with the kernel chunked_scan(const float* x, float* sums, int T).

    x and sums (rows, T); block b of a multiple of 32 threads makes the prefix sums of row b:
    sums[b, t] = x[b, 0] + ... + x[b, t]. T may be more than the threads.
    """
    kernel = compiled(source, "chunked_scan", after=SIGNATURE)
    for T, threads in CASES:
        # Whole numbers, whose sums are exact in whatever order they are added.
        x = torch.randint(1, 10, (3, T), generator=torch.Generator().manual_seed(T)).float()
        case = f"T = {T}, {threads} threads"
        found = []
        for order in ORDERS:
            try:
                found.append(run(kernel, x, threads, order))
            except KernelFault as fault:
                raise Wrong(f"{case}, order {order!r}: {fault}") from None
        for order, sums in zip(ORDERS[1:], found[1:], strict=True):
            if not torch.equal(sums.nan_to_num(-1), found[0].nan_to_num(-1)):
                raise Wrong(
                    f"{case}: the answers of the orders {ORDERS[0]!r} and {order!r} differ: "
                    "threads read what others have not yet written, or have overwritten; "
                    "a barrier is missing"
                )
        if why := fault_of(found[0], x, threads):
            raise Wrong(f"{case}: {why}")
    stay_inside(source)
    print(f"right: {len(CASES)} lengths, each in {len(ORDERS)} orders of the threads")


def run(kernel: Function, x: Tensor, threads: int, order: str | int) -> Tensor:
    """The sums (rows, T), NaN where the kernel has not written; KernelFault if it writes beyond."""
    rows, T = x.shape
    nan = torch.full((GUARD,), torch.nan)
    given = torch.cat([nan, x.flatten(), nan])
    out = torch.full_like(given, torch.nan)
    places = [np.uint64(z.data_ptr() + GUARD * z.element_size()) for z in (given, out)]
    kernel((rows,), (threads,), [*places, np.int32(T)], order=order)
    if not torch.cat([out[:GUARD], out[-GUARD:]]).isnan().all():
        raise KernelFault("it writes before the first row of sums, or behind the last one")
    if not torch.equal(given[GUARD:-GUARD], x.flatten()):
        raise KernelFault("it writes to x")
    return out[GUARD:-GUARD].view(rows, T)


def stay_inside(source: str) -> None:
    """AssertionError if it reads behind x, where the sums do not show it."""
    rows, T = 2, 40
    x, out = torch.ones(rows * T + GUARD), torch.empty(rows * T)
    read = trace(source, "chunked_scan", (rows,), (32,), [x, out, np.int32(T)])
    last = read["index"][read["array"] == 0].max()
    if last >= rows * T:
        raise Wrong(
            f"T = {T}, 32 threads: it reads x[{last}], but the last of {rows} rows ends at "
            f"x[{rows * T - 1}]: on a GPU that is somebody else's memory"
        )


def fault_of(sums: Tensor, x: Tensor, threads: int) -> str | None:
    """What is wrong at the first wrong number; None if all are right."""
    right = x.cumsum(dim=1)
    wrong = ~(sums == right)  # a NaN is wrong, too
    if not wrong.any():
        return None
    t = wrong.any(dim=0).nonzero()[0].item()
    b = wrong[:, t].nonzero()[0].item()
    mine, theirs, row = sums[b, t].item(), right[b, t].item(), x[b]
    chunk, warp = t // threads * threads, t // 32 * 32

    def since(start: int) -> float:
        return row[start : t + 1].sum().item()

    if np.isnan(mine):
        why = "it is not written, or made from numbers that nobody has set"
    elif mine == theirs - row[t].item():
        why = "it holds the tokens before t; x[t] belongs to it, too"
    elif chunk and mine == since(chunk):
        why = f"the sum begins anew at t = {chunk}: the chunk lacks the carry of those before it"
    elif chunk and mine == since(chunk - threads):
        why = "the carry is the sum of the last chunk alone, not of all chunks before this one"
    elif warp > chunk and mine == theirs - row[chunk:warp].sum().item():
        why = f"the warp that begins at t = {warp} lacks the totals of the block's other warps"
    elif warp > chunk + 32 and mine == theirs - row[chunk : warp - 32].sum().item():
        why = "a warp adds the total of the warp before it alone, not of all before it"
    else:
        why = "a wrong sum"
    return f"sums[{b}, {t}] is {mine:g}, not {theirs:g}: {why}"
