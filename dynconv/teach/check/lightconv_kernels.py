"""Check of the exercise on a CUDA kernel for LightConv's weights, in the simulator."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from dynconv.kernels import launch, simulate
from dynconv.teach.check.compiled import compiled
from dynconv.teach.judge import Wrong
from dynconv.teach.trace import trace, traffic

NAME = "weight_tile<double>"
ORDERS = ("forward", "backward", 0, 1)
GUARD = 2**16  # numbers before and behind each tensor
UNWRITTEN = 0x7FF8_0000_0000_19C0  # a NaN that no arithmetic makes


class Case(NamedTuple):
    """Sizes of a launch, and what a fault here, and in no case before, is about."""

    what: str
    B: int
    T: int
    H: int
    R: int
    K: int
    pad: int
    N: int

    def __str__(self) -> str:
        sizes = zip(self._fields[1:], self[1:], strict=True)
        return f"{self.what} ({', '.join(f'{name} = {size}' for name, size in sizes)})"

    @property
    def blocks(self) -> int:
        """Of a sentence."""
        return -(-self.T // self.N)


CASES = (
    Case("the plain sum, without a halo", 1, 8, 1, 32, 1, 0, 8),
    Case("the halo at the ends of a sentence, where rows count as 0", 1, 8, 1, 32, 5, 2, 8),
    Case("the halo between two blocks", 1, 16, 1, 32, 5, 3, 8),
    Case("more taps than rows of threads", 1, 16, 1, 32, 11, 5, 8),
    Case("the tail, a last block with fewer than N positions", 1, 13, 1, 32, 5, 2, 8),
    Case("a second sentence", 2, 13, 1, 32, 5, 2, 8),
    Case("heads, whose channels leave lanes idle", 2, 13, 3, 20, 5, 2, 8),
)
TRACED = Case("", 1, 64, 1, 32, 11, 5, 32)


def weight_gradient_kernel(source: str) -> None:
    """`source` has the kernel weight_tile, the first stage of the gradient of LightConv's weights.

    template <typename Number> __global__ void weight_tile(const Number* g, const Number* x,
        Number* partial, int T, int C, int H, int K, int pad, int N)

    g and x are (B, T, C), partial is (B * tiles, H, K) with tiles = ceil(T / N). The grid is
    (H, tiles, B), a block (32, 8), and its dynamic shared memory 2 (N + K) - 1 rows of 32 numbers.
    """
    header = launch.code("number.cuh")
    source = source.removeprefix(header) if isinstance(source, str) else source
    before = f'{header}#line 1 "your source"\n'
    kernel = compiled(source, NAME, before=before)
    for case in CASES:
        try:
            judge_case(kernel, case)
        except simulate.KernelFault as fault:
            raise Wrong(f"{case}: {fault}") from None
    g, x = count_loads(before + source)
    cases = f"{len(CASES)} cases in {len(ORDERS)} orders"
    sizes = f"N = {TRACED.N} and K = {TRACED.K}"
    print(f"right: {cases}; loads of each number: {g:.2g} of g, {x:.2g} of x, at {sizes}")


def gradient_and_input(case: Case) -> tuple[Tensor, Tensor]:
    """g and x."""
    seed = torch.Generator().manual_seed(case.T)
    size = case.B, case.T, case.H * case.R
    return tuple(torch.randn(2, *size, generator=seed, dtype=torch.float64))


def guarded(x: Tensor, bits: int = 0x7FF8 << 48) -> tuple[Tensor, Tensor]:
    """A copy of x between two guard zones, and all of that memory; float64."""
    memory = torch.full((GUARD + x.numel() + GUARD,), bits, dtype=torch.int64).view(torch.float64)
    copy = memory[GUARD:-GUARD].view(x.shape)
    copy.copy_(x)
    return copy, memory


def launch_of(case: Case, g: Tensor, x: Tensor, partial: Tensor) -> tuple:
    """Grid, block, arguments and shared bytes."""
    sizes = case.T, case.H * case.R, case.H, case.K, case.pad, case.N
    shared = (2 * (case.N + case.K) - 1) * 32 * 8
    return (case.H, case.blocks, case.B), (32, 8), (g, x, partial, *sizes), shared


def partial_sums(case: Case, g: Tensor, x: Tensor) -> Tensor:
    """(B * tiles, H, K)"""
    padded = F.pad(x, (0, 0, case.pad, case.K - 1 - case.pad))
    products = g[..., None] * padded.unfold(1, case.K, 1)  # (B, T, C, K)
    products = F.pad(products, (0, 0, 0, 0, 0, case.blocks * case.N - case.T))
    whole = products.unflatten(1, (case.blocks, case.N)).unflatten(3, (case.H, case.R))
    return whole.sum(dim=(2, 4)).flatten(0, 1)


def judge_case(kernel: simulate.Function, case: Case) -> None:
    """AssertionError if the kernel gives anything else in any order of the threads."""
    inputs = gradient_and_input(case)
    wanted = partial_sums(case, *inputs)
    found = []
    for order in ORDERS:
        (g, _), (x, _) = map(guarded, inputs)
        _, memory = guarded(wanted, UNWRITTEN)
        memory.view(torch.int64).fill_(UNWRITTEN)
        partial = memory[GUARD:-GUARD].view(wanted.shape)
        grid, block, arguments, shared = launch_of(case, g, x, partial)
        values = [launch.convert(argument) for argument in arguments]
        kernel(grid, block, values, shared_mem=shared, order=order)
        outside = (memory.view(torch.int64) != UNWRITTEN).nonzero().flatten() - GUARD
        outside = outside[(outside < 0) | (outside >= wanted.numel())]
        if len(outside):
            raise Wrong(
                f"{case}: it writes outside partial, which has {wanted.numel()} numbers, at "
                f"number {outside[0]}"
            )
        found.append(partial.clone())
    for order, other in zip(ORDERS[1:], found[1:], strict=True):
        differ = (other != found[0]) & ~(other.isnan() & found[0].isnan())
        if differ.any():
            one, two = value_at(found[0], differ), value_at(other, differ)
            raise Wrong(
                f"{case}: {name_place(differ)} is {one} with threads in the order {ORDERS[0]!r} "
                f"and {two} in the order {order!r}: a __syncthreads() is missing between writing "
                "shared memory and reading it, or sums are atomic"
            )
    wrong = ~torch.isclose(found[0], wanted, rtol=1e-9, atol=1e-12)
    if wrong.any():
        mine, theirs = value_at(found[0], wrong), value_at(wanted, wrong)
        later = "; only later digits differ: add up in Number, not in float"
        raise Wrong(
            f"{case}: {name_place(wrong)} is {mine}, not {theirs}{later * (mine == theirs)}"
        )


def name_place(where: Tensor) -> str:
    """The first place, as one writes it."""
    return f"partial{where.nonzero()[0].tolist()}"


def value_at(values: Tensor, where: Tensor) -> str:
    """The value at the first place."""
    first = values[where][0]
    if first.view(torch.int64) == UNWRITTEN:
        return "NaN as before (nobody has written it; or something was only added to it)"
    if first.isnan():
        return "NaN (from shared memory that nobody has written, or from outside g or x)"
    return f"{first:.6g}"


def count_loads(code: str) -> tuple[float, float]:
    """How often a number of g and of x is loaded from global memory; not more than a tile needs."""
    case = TRACED
    g, x = gradient_and_input(case)
    partial = torch.zeros(case.B * case.blocks, case.H, case.K, dtype=torch.float64)
    grid, block, arguments, shared = launch_of(case, g, x, partial)
    values = [a if isinstance(a, Tensor) else launch.convert(a) for a in arguments]
    found = traffic(trace(code, NAME, grid, block, values, shared))
    needed = {"g": 1.0, "x": (case.N + case.K - 1) / case.N}
    counts = [found[i].loaded / g.nbytes for i in range(2)]
    for (name, most), count in zip(needed.items(), counts, strict=True):
        if count > 1.5 * most:
            raise Wrong(
                f"the sums are right, but a number of {name} is loaded {count:.2g} times from "
                f"global memory, at N = {case.N} and K = {case.K}; a tile needs {most:.2g}"
            )
    return counts[0], counts[1]
