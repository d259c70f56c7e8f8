"""Compiles a reader's CUDA kernel for the simulator, runs it, and judges its results."""

from collections.abc import Callable, Sequence
from math import nan, prod
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from dynconv.lab import simulate
from dynconv.lab.simulate.trace import trace
from dynconv.teach.judge import EXACT, Faults, Wrong, describe_type, find_explanation

ORDERS = ("forward", "backward", 0, 1)
"""orders in which the threads of a block run: without a barrier, answers depend on it"""
GUARD = 2**16
"""elements of padding on each side of an array: a wrong index rarely reaches further"""
UNWRITTEN = {torch.float32: 0x7FCA_FE00, torch.float64: 0x7FF8_0000_0000_19C0}
"""bits of a NaN that arithmetic only passes on"""
BITS = {torch.float32: torch.int32, torch.float64: torch.int64}


def compile_answer(
    code: str, name: str, signature: str = "", before: str = "", after: str = ""
) -> simulate.Function:
    """Return kernel `name` of the CUDA source; raise `Wrong` with the compiler's first error.

    before, after  source code around it
    signature      quoted if the kernel is missing
    """
    if not isinstance(code, str):
        raise Wrong(f"it is {describe_type(code)}, not CUDA source as text")
    try:
        return simulate.Module(before + code + after, [name]).get_function(name)
    except simulate.CompileError as error:
        if str(error).startswith("names:"):
            raise Wrong(f"it has no kernel {signature or name}") from None
        raise Wrong(f"it does not compile: {error}") from None


class GuardedLaunch(NamedTuple):
    """Launches a kernel whose arguments are inputs, `out` and sizes, in this order."""

    grid: tuple[int, ...]
    block: tuple[int, ...]
    inputs: dict[str, Tensor]
    out: str
    shape: tuple[int, ...]
    sizes: Sequence[int]
    shared: int = 0

    def run(self, kernel: simulate.Function, order: str | int) -> Tensor:
        """Run a kernel and return `out`; Wrong if it writes to the guard zones of its arrays."""
        dtype = next(iter(self.inputs.values())).dtype
        count = prod(self.shape)
        memory = {k: F.pad(x.flatten(), (GUARD, GUARD), value=nan) for k, x in self.inputs.items()}
        unwritten = torch.full((count + 2 * GUARD,), UNWRITTEN[dtype], dtype=BITS[dtype])
        memory[self.out] = unwritten.view(dtype)
        bits = {name: x.view(BITS[dtype]) for name, x in memory.items()}
        before = {name: x.clone() for name, x in bits.items()}
        addresses = [np.uint64(x[GUARD:].data_ptr()) for x in memory.values()]
        values = [*addresses, *map(np.int32, self.sizes)]
        kernel(self.grid, self.block, values, shared_mem=self.shared, order=order)
        for name, now in bits.items():
            places = (now != before[name]).nonzero().flatten() - GUARD
            why = "it is an input"
            if name == self.out:
                places = places[(places < 0) | (places >= count)]
                why = f"{name} has {count} numbers"
            if len(places):
                raise Wrong(f"{name}[{places[0]}] is written, but {why}")
        return memory[self.out][GUARD:-GUARD].view(self.shape)

    def trace(self, code: str, name: str) -> np.ndarray:
        """Return the accesses to memory of a run; arrays are numbered in their order."""
        out = torch.zeros(self.shape, dtype=next(iter(self.inputs.values())).dtype)
        values = [*self.inputs.values(), out, *map(np.int32, self.sizes)]
        return trace(code, name, self.grid, self.block, values, self.shared)


def judge_launch(
    kernel: simulate.Function,
    given: GuardedLaunch,
    right: Tensor,
    faults: Faults | None = None,
    *,
    explain: Callable[..., str] | None = None,
    tolerance: tuple[float, float] = EXACT,
    orders: Sequence[str | int] = ORDERS,
) -> None:
    """Raise `Wrong` unless the result is right for every order in which the threads may run."""
    results = []
    for order in orders:
        try:
            results.append(given.run(kernel, order))
        except (simulate.KernelFault, Wrong) as fault:
            last = f", threads in the order {order!r}" if order != "forward" else ""
            raise Wrong(f"{fault}{last}") from None
    mine = results[0]
    for order, other in zip(orders[1:], results[1:], strict=True):
        differ = (other != mine) & ~(other.isnan() & mine.isnan())
        if differ.any():
            at = tuple(differ.nonzero()[0].tolist())
            raise Wrong(
                f"{given.out}{list(at)} is {describe_value(mine[at])} with threads in the order "
                f"{orders[0]!r} and {describe_value(other[at])} in the order {order!r}: a "
                "__syncthreads() is missing between writing shared memory and reading it, or sums "
                "are atomic"
            )
    wrong = ~torch.isclose(mine, right, *tolerance)
    if wrong.any():
        at = tuple(wrong.nonzero()[0].tolist())
        why = find_explanation(mine, right, faults, explain, given.inputs, tolerance)
        values = f"{describe_value(mine[at])}, not {describe_value(right[at])}"
        raise Wrong(f"{given.out}{list(at)} is {values}{why}")


def describe_value(x: Tensor) -> str:
    """Return a value as text; for NaN, where it comes from."""
    if x.view(BITS[x.dtype]) == UNWRITTEN[x.dtype]:
        return "NaN as before (it is not written, or only added to what was there)"
    if x.isnan():
        return "NaN (from outside of an input, or from shared memory that was never written)"
    return f"{x:.6g}"
