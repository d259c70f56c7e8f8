"""Prepares runs, times them by turns, and turns the results into rows of the file."""

import re
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from math import isfinite

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from dynconv.lab.bench.cases import Case, Shape, attention, draw, dtype_name
from dynconv.lab.bench.cuda import floors
from dynconv.lab.bench.cuda.competitors import (
    SLOW,
    KernelRun,
    attention_backend,
    both_directions,
    compiled,
    copying,
    eager,
    kernel_runs,
)
from dynconv.lab.bench.cuda.gate import DROPOUT
from dynconv.lab.bench.cuda.gpu import Gpu, first_line
from dynconv.lab.bench.measure import four_digits, take_turns
from dynconv.layers import DynamicConv

COMPILED, COMPILING = 1000, 90  # the length T for which PyTorch compiles, and seconds for all that
SQUARE = 8e9  # bytes of the T x T matrices beyond which they are left out
MATRIX = re.compile("gemm|gemv|cutlass|xmma|cublas|nvjet|splitk", re.IGNORECASE)


class Bench:
    """Measures on one GPU; holds what the measurements of a command share.

    kernels: torch.ops.dynconv, or simulate.kernels for tensors on the CPU
    """

    def __init__(self, gpu: Gpu, kernels, rounds: int):
        self.gpu, self.kernels, self.rounds = gpu, kernels, rounds
        self.compiling = 0.0  # seconds
        self.tried: Counter = Counter()  # compilations of an operator in a dtype
        self.copied: float | None = None  # GB/s of a copy at the largest shape
        self.attention: dict[str, float | None] = {}  # milliseconds of each direction

    def prepare(self, run: KernelRun, size: int) -> None:
        """Warm up, count memory in multiples of `size`, and capture; a failure becomes a note."""
        try:
            start = time.perf_counter()
            run.make()[0]()  # whatever is compiled, chosen or allocated once
            self.compiling += time.perf_counter() - start if run.impl == "compiled" else 0
            before = self.gpu.used()
            call, kept = run.make()
            run.peak = (self.gpu.peak(call) - before - kept) / size
            run.call, run.note = self.gpu.capture(call)
        except torch.OutOfMemoryError:
            run.note = "left out: with the others it needs more than half of the GPU's memory"
        except Exception as why:  # of many kinds where PyTorch compiles
            run.note = f"failed: {first_line(why)}"
        run.right = run.right and run.call is not None

    def time(self, runs: Sequence[KernelRun], size: int) -> None:
        """Time the runs by turns, without those that have a note already."""
        for run in runs:
            if run.note is None:
                self.prepare(run, size)
        for run in take_turns(runs, self.rounds, SLOW, least=3):
            try:
                run.times.append(self.gpu.seconds(run.call))
            except Exception as why:
                run.call, run.times, run.note = None, [], f"failed: {first_line(why)}"
                run.right = None if run.right is None else False

    def row(
        self,
        named: dict,
        run: KernelRun,
        moved: int | None,
        floor_us: float | None,
        best: float | None,
    ) -> dict:
        """Return a row of the file.

        moved  bytes that must move
        best   milliseconds of the fastest of PyTorch's eager implementations
        """
        speed = over(moved, run.ms and run.ms * 1e6)
        numbers = {
            "ms": run.ms,
            "gb_per_s": speed,
            "copy_share": over(speed, self.copied),
            "times_floor": over(run.ms and run.ms * 1e3, floor_us),
            "attention_by_this": over(self.attention.get(run.direction), run.ms),
            "eager_by_this": over(best, run.ms),
            "peak": run.peak,
            "error": run.error,
        }
        finite = {k: v if v is None or isfinite(v) else str(v) for k, v in numbers.items()}
        row = named | {"impl": run.impl, "direction": run.direction} | four_digits(finite)
        return row | {"rounds": len(run.times), "right": run.right, "note": run.note}

    def calibrate(self, shape: Shape, dtype: torch.dtype) -> None:
        """Measure the GB/s of a copy, by the copy engine or a kernel, whichever is faster."""
        x = torch.randn(shape[:3], device=self.gpu.device).to(dtype)
        runs = [copying(x), KernelRun("", "forward", make=lambda: (lambda: torch.neg(x), 0))]
        self.time(runs, x.nbytes)
        fastest = min((run.ms for run in runs if run.ms), default=None)
        self.copied = over(2 * x.nbytes, fastest and fastest * 1e6)

    def references(self, shape: Shape, dtype: torch.dtype) -> list[dict]:
        """Measure a tiny launch, a copy, and attention, which is flash in half precision."""
        self.gpu.fresh()
        q, k, v, g = torch.randn(4, *shape[:3], device=self.gpu.device).to(dtype)

        def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            with sdpa_kernel(SDPBackend.FLASH_ATTENTION) if dtype.itemsize == 2 else nullcontext():
                return attention(q, k, v, shape.H)

        chosen = ""
        with suppress(RuntimeError), torch.enable_grad():
            chosen = attention_backend(attend(q[:1].detach().requires_grad_(), k[:1], v[:1]))
        one = torch.zeros(1, device=self.gpu.device)
        launched = KernelRun("", "forward", make=lambda: (one.zero_, 0))
        launched, copy, *others = runs = [
            launched, copying(q), *both_directions(chosen, attend, [q, k, v], g)
        ]  # fmt: skip
        self.time(runs, q.nbytes)
        self.attention = {run.direction: run.ms for run in others}
        named = {"K": None, "dtype": dtype_name(dtype)} | shape._asdict()
        rows = [
            self.row({"operator": "attention"} | named, run, None, None, None) for run in others
        ]
        return [
            self.row({"operator": "launch"} | named, launched, None, None, None),
            self.row({"operator": "copy"} | named, copy, 2 * q.nbytes, None, None),
            *rows,
        ]

    def operator(self, case: Case) -> list[dict]:
        """Measure the kernels of a case and what they compete with."""
        self.gpu.fresh()
        inputs, g, seed = draw(case, self.gpu.device)
        try:
            runs = kernel_runs(self.kernels, case, inputs, g, seed)
        except Exception as why:  # it does not compile, or float64 does not fit
            note = f"not checked, not timed: {first_line(why)}"
            both_ways = "forward", "backward"
            runs = [KernelRun("cuda", way, right=False, note=note) for way in both_ways]
        implementations = eager(case)
        B, T, _, H = case.shape
        square = B * H * T**2 * case.dtype.itemsize
        for name, function in implementations.items():
            if name in ("band", "window") and square > SQUARE:
                note = f"left out: T x T for each head is {square / 1e9:.0f} GB"
                runs += [KernelRun(name, way, note=note) for way in ("forward", "backward")]
            else:
                runs += both_directions(name, function, inputs, g)
        if case.shape.T == COMPILED and "shifted" in implementations:
            self.tried[case.operator, case.dtype] += 1
            late = self.compiling > COMPILING or self.tried[case.operator, case.dtype] > 3
            note = f"left out: three are compiled, or {COMPILING} s are over" if late else None
            runs += [
                replace(run, note=note) for run in compiled(implementations["shifted"], inputs, g)
            ]
        self.time(runs, inputs[0].nbytes)
        known, rows = floors.known(case), []
        for run in runs:
            rivals = [z for z in runs if z.impl in implementations and z.direction == run.direction]
            best = min((z.ms for z in rivals if z.ms and not z.note), default=None)
            of = known[run.direction]
            rows.append(self.row(case.named(), run, of["bytes"], of["floor_us"], best))
        return rows

    def layer(self, shape: Shape, dtype: torch.dtype) -> list[dict]:
        """Measure where a DynamicConv layer with parameters of `dtype` spends time in bfloat16."""
        self.gpu.fresh()
        layer = DynamicConv(shape.C, shape.H, 31, glu=True, weight_dropout=DROPOUT)
        layer = layer.to(self.gpu.device, dtype)
        x = torch.randn(shape[:3], device=self.gpu.device).to(dtype).requires_grad_()
        g = torch.randn(shape[:3], device=self.gpu.device).bfloat16()

        @torch.enable_grad()
        def forward() -> Tensor:
            with torch.autocast(x.device.type, torch.bfloat16, enabled=dtype == torch.float32):
                return layer(x)

        def both() -> object:
            return torch.autograd.grad(forward(), [x, *layer.parameters()], g)

        rows = []
        for name, step in {"forward": forward, "forward_backward": both}.items():
            for _ in range(5):
                step()
            spent = self.gpu.kernel_times(step, 20)
            total = sum(spent.values())
            other = sum(us for kernel, us in spent.items() if not MATRIX.search(kernel))
            most = sorted(spent.items(), key=lambda item: -item[1])[:10]
            row = {"layer": "DynamicConv", "K": 31, "dtype": dtype_name(dtype)} | shape._asdict()
            row |= four_digits({"us": total, "other_share": over(other, total)})
            top = [four_digits({"us": us, "kernel": kernel}) for kernel, us in most]
            rows.append(row | {"direction": name, "most": top})
        return rows


def over(a: float | None, b: float | None) -> float | None:
    """Return a / b, or None if one of them is."""
    return a / b if a is not None and b else None
