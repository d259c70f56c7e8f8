"""Checks of the exercises on CUDA kernels, which run on the CPU."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from dynconv import ops
from dynconv.kernels import simulate
from dynconv.teach.check.compiled import compiled
from dynconv.teach.judge import Wrong
from dynconv.teach.trace import trace

SIGNATURE = (
    "__global__ void depthwise(const float* x, const float* weight, float* out, "
    "int B, int C, int T, int K, int pad)"
)
PARAMETERS = [("p", 8)] * 3 + [("i", 4)] * 5
GUARD = 1 << 16  # numbers on each side of an array: a wrong index seldom goes further
UNTOUCHED = 0x7FCAFE00  # of out before a run: the bits of a NaN that arithmetic only passes on


class Run(NamedTuple):
    """One launch: the operator's sizes, blocks and threads."""

    B: int
    C: int
    T: int
    K: int
    pad: int
    grid: int
    block: int

    def __str__(self) -> str:
        sizes = ", ".join(
            f"{name} = {size}" for name, size in zip(self._fields[:5], self[:5], strict=True)
        )
        return f"{sizes}, blocks {self.grid}, threads of each {self.block}"


RUNS = (
    Run(1, 1, 8, 3, 1, grid=1, block=8),  # a thread for each number
    Run(1, 1, 9, 5, 4, grid=1, block=9),
    Run(2, 3, 7, 3, 0, grid=1, block=42),
    Run(2, 3, 7, 5, 2, grid=2, block=32),  # surplus threads
    Run(2, 3, 7, 5, 2, grid=5, block=33),  # surplus blocks
    Run(2, 5, 33, 4, 1, grid=3, block=32),  # too few threads
    Run(3, 2, 5, 9, 4, grid=1, block=1),  # K > T
)
ORDERS = ("forward", "backward", 0)


def depthwise_kernel(code: str) -> None:
    """`code` is CUDA source with the kernel of SIGNATURE, which is right for every grid.

    x and out (B, C, T), weight (C, K): out[b, c, t] = sum_j weight[c, j] x[b, c, t + j - pad]
    """
    kernel = compiled(code, "depthwise", SIGNATURE)
    if kernel.parameters != PARAMETERS:
        raise Wrong(f"its parameters are not those of {SIGNATURE}")
    for run in RUNS:
        for order in ORDERS:
            try:
                _judge(kernel, run, order)
            except (simulate.KernelFault, Wrong) as error:
                last = f", threads in the order {order!r}" if order != "forward" else ""
                raise Wrong(f"{run}{last}: {error}") from None
    _shared_out(code, RUNS[-2])
    print(f"right: {len(RUNS)} launches, each with its threads in {len(ORDERS)} orders")


def _judge(kernel: simulate.Function, run: Run, order: str | int) -> None:
    """One launch on arrays between guard zones of NaN."""
    B, C, T, K, pad = run[:5]
    seed = torch.Generator().manual_seed(K)
    x, weight = (torch.randn(size, generator=seed) for size in ((B, C, T), (C, K)))
    arrays = {"x": _guarded(x), "weight": _guarded(weight), "out": _guarded(torch.empty_like(x))}
    _bits(arrays["out"]).fill_(UNTOUCHED)
    before = {name: _bits(array).clone() for name, array in arrays.items()}
    addresses = [np.uint64(array[GUARD:].data_ptr()) for array in arrays.values()]
    sizes = [np.int32(size) for size in run[:5]]
    kernel((run.grid,), (run.block,), [*addresses, *sizes], order=order)

    for name, array in arrays.items():
        size = len(array) - 2 * GUARD
        places = (_bits(array) != before[name]).nonzero().flatten() - GUARD
        if name == "out":
            places = places[(places < 0) | (places >= size)]
        if len(places):
            at = f"{name}[{places[0]}]"
            reason = f"out has {size} numbers" if name == "out" else "it is an input"
            raise Wrong(f"{at} is written, but {reason}")
    out = arrays["out"][GUARD : GUARD + x.numel()].view(B, C, T)
    right = _convolved(x, weight, pad)
    for wrong, what in (
        (_bits(out) == UNTOUCHED, "is not written, or is added to what lay there"),
        (out.isnan(), "is NaN: a number from outside x or weight is in it"),
        (~torch.isclose(out, right, rtol=1e-4, atol=1e-5), ""),
    ):
        if wrong.any():
            at = tuple(wrong.nonzero()[0].tolist())
            values = f"is {out[at]:.4g}, not {right[at]:.4g}"
            raise Wrong(f"out{list(at)} {what or values + next(_reasons(out, x, weight, pad), '')}")


def _shared_out(code: str, run: Run) -> None:
    """No number is made by two threads, which would be right, and slow."""
    B, C, T, K, _ = run[:5]
    arrays = torch.zeros(B, C, T), torch.zeros(C, K), torch.zeros(B, C, T)
    sizes = (np.int32(size) for size in run[:5])
    accesses = trace(code, "depthwise", (run.grid,), (run.block,), (*arrays, *sizes))
    written = accesses[accesses["write"] & (accesses["array"] == 2)]
    made = len(np.unique(written[["block", "thread", "index"]]))
    if made != B * C * T:
        raise Wrong(
            f"{run}: right, but the threads make {made} numbers where out has {B * C * T}: from "
            "one number of a thread to its next it is gridDim.x * blockDim.x"
        )


def _guarded(z: Tensor) -> Tensor:
    """The numbers of z, with NaN before and after them."""
    zone = torch.full((GUARD,), torch.nan)
    return torch.cat([zone, z.flatten(), zone])


def _bits(z: Tensor) -> Tensor:
    return z.view(torch.int32)


def _convolved(x: Tensor, weight: Tensor, pad: int) -> Tensor:
    """What the kernel shall compute."""
    return ops.depthwise_conv(x.mT, weight, pad_left=pad, impl="loop").mT


def _reasons(out: Tensor, x: Tensor, weight: Tensor, pad: int) -> Iterator[str]:
    """What may be wrong with wrong numbers: which mistakes would give the same."""
    (B, C, T), K = x.shape, weight.shape[1]
    mistakes = {
        "the taps are in the order of a mirror": _convolved(x, weight.flip(1), pad),
        "pad counts zeros before position 0, not after the end": _convolved(x, weight, K - 1 - pad),
        "weight is (C, K): the taps of a channel lie side by side": _convolved(
            x, weight.view(K, C).T, pad
        ),
        "every channel has its own K weights": _convolved(x, weight[:1].expand(C, K), pad),
        "x is (B, C, T): time lies side by side": _convolved(
            x.view(B, T, C).mT, weight, pad
        ).mT.reshape(B, C, T),
    }
    for reason, wrong in mistakes.items():
        if torch.allclose(out, wrong, rtol=1e-4, atol=1e-5):
            yield f"; {reason}"
    inside = slice(pad, T - (K - 1 - pad))
    if T >= K and torch.allclose(out[..., inside], _convolved(x, weight, pad)[..., inside]):
        yield "; it is right where no tap leaves the sequence: beyond its ends x counts as 0"
