"""Times the kernels of a case and what they are compared with, as rows of the results file."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from itertools import groupby
from math import isfinite
from types import MappingProxyType
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from dynconv.lab.bench.cases import Case, Shape, attention, draw_inputs
from dynconv.lab.bench.implementations import Implementation
from dynconv.lab.bench.kernels import roofline
from dynconv.lab.bench.kernels.baselines import (
    attention_backend,
    eager_implementations,
    kernel_runs,
    torch_compiled,
)
from dynconv.lab.bench.kernels.gpu_clock import GpuClock
from dynconv.lab.bench.measure import Measurement, first_line, measure, round_floats

COMPILED_LENGTH = 1000
"""the length T at which PyTorch compiles once per operator and dtype"""
DIRECTIONS = "forward", "backward"


class References(NamedTuple):
    """The speeds at one shape and dtype with which its rows are compared; None: not measured."""

    copy_gb_per_s: float | None = None
    """GB/s of a copy of x"""
    attention_ms: Mapping[str, float | None] = MappingProxyType({})
    """milliseconds of attention by direction"""


class GpuBench:
    """Runs the measurements of one command on one GPU.

    kernels  torch.ops.dynconv, or simulate.kernels for tensors on the CPU
    """

    def __init__(self, clock: GpuClock, kernels, rounds: int):
        self.clock, self.kernels, self.rounds = clock, kernels, rounds
        self.compiled: set[tuple[str, torch.dtype]] = set()

    def tables(self, cases: Sequence[Case]) -> Iterator[list[dict]]:
        """Yield the rows of each shape and dtype: first of the references, then of each case."""
        for (shape, dtype), group in groupby(cases, lambda case: (case.shape, case.dtype)):
            references, rows = self.measure_references(shape, dtype)
            yield rows
            for case in group:
                yield self.measure_operator(case, references)

    def measure_references(self, shape: Shape, dtype: torch.dtype) -> tuple[References, list[dict]]:
        """Measure a tiny launch, a copy, and attention, which is flash in half precision.

        Returns what the operators of this shape and dtype are compared with, and the rows.
        """
        self.clock.new_pool()
        q, k, v, g = torch.randn(4, *shape[:3], device=self.clock.device).to(dtype)

        def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            with sdpa_kernel(SDPBackend.FLASH_ATTENTION) if dtype.itemsize == 2 else nullcontext():
                return attention(q, k, v, shape.H)

        impl = ""
        inputs = [z.requires_grad_() for z in (q, k, v)]
        with suppress(RuntimeError), torch.enable_grad():
            impl = attention_backend(attend(*(z[:1] for z in inputs)))
        one = torch.zeros(1, device=self.clock.device)
        case = Case("attention", None, dtype, shape)

        def make_copy(tensors: Sequence[Tensor]) -> Callable[[], Tensor]:
            return lambda: torch.empty_like(tensors[0]).copy_(tensors[0])

        launch = Measurement("launch", "", "forward", lambda tensors: tensors[0].zero_, [one])
        copy = Measurement("copy", "", "forward", make_copy, [q.detach()])
        attending = [
            Implementation(case, impl, attend, inputs, g).measurement(d) for d in DIRECTIONS
        ]
        measure([launch, copy, *attending], self.clock, self.rounds, "references")
        references = References(
            copy_gb_per_s=quotient(2 * q.nbytes, copy.ms and copy.ms * 1e6),
            attention_ms={run.direction: run.ms for run in attending},
        )
        return references, [
            make_row(case, launch, references),
            make_row(case, copy, references, {"bytes": 2 * q.nbytes, "floor_us": None}),
            *(make_row(case, run, references) for run in attending),
        ]

    def measure_operator(self, case: Case, references: References) -> list[dict]:
        """Measure the kernels of a case and PyTorch's implementations."""
        self.clock.new_pool()
        inputs, g, seed = draw_inputs(case, self.clock.device)
        try:
            runs = kernel_runs(self.kernels, case, inputs, g, seed)
        except Exception as error:  # it does not compile, or float64 does not fit
            note = f"not checked, not timed: {first_line(error)}"
            runs = [
                Measurement(case.operator, "cuda", d, right=False, note=note) for d in DIRECTIONS
            ]
        leaves = [z.detach().requires_grad_() for z in inputs]
        functions = eager_implementations(case)
        for impl, function in functions.items():
            baseline = Implementation(case, impl, function, leaves, g)
            runs += [baseline.measurement(direction) for direction in DIRECTIONS]
        kind = case.operator, case.dtype
        if case.shape.T == COMPILED_LENGTH and "shifted" in functions and kind not in self.compiled:
            self.compiled.add(kind)
            function = torch_compiled(functions["shifted"])
            baseline = Implementation(case, "compiled", function, leaves, g)
            runs += [baseline.measurement(direction) for direction in DIRECTIONS]
        measure(runs, self.clock, self.rounds, f"{case.operator}, T = {case.shape.T:,}")
        predictions = roofline.predict_case(case)
        rows = []
        for run in runs:
            eager_runs = [z for z in runs if z.impl in functions and z.direction == run.direction]
            best = min((z.ms for z in eager_runs if z.ms and not z.note), default=None)
            rows.append(make_row(case, run, references, predictions[run.direction], best))
        return rows


def make_row(
    case: Case,
    run: Measurement,
    references: References,
    floor: dict | None = None,
    eager_ms: float | None = None,
) -> dict:
    """Return a row of the file.

    floor     the prediction of `roofline.predict_case` for this direction: bytes and floor_us
    eager_ms  milliseconds of the fastest of PyTorch's eager implementations
    """
    floor = floor or {"bytes": None, "floor_us": None}
    speed = quotient(floor["bytes"], run.ms and run.ms * 1e6)
    numbers = {
        "ms": run.ms,
        "gb_per_s": speed,
        "copy_share": quotient(speed, references.copy_gb_per_s),
        "times_floor": quotient(run.ms and run.ms * 1e3, floor["floor_us"]),
        "attention_by_this": quotient(references.attention_ms.get(run.direction), run.ms),
        "eager_by_this": quotient(eager_ms, run.ms),
        "peak": quotient(run.peak, case.x_bytes),
        "error": run.error,
    }
    finite = {k: v if v is None or isfinite(v) else str(v) for k, v in numbers.items()}
    row = case._replace(operator=run.operator).describe()
    row |= {"impl": run.impl, "direction": run.direction} | round_floats(finite)
    return row | {"rounds": len(run.times), "right": run.right, "note": run.note}


def quotient(a: float | None, b: float | None) -> float | None:
    """Return a / b, or None if a or b is None."""
    return a / b if a is not None and b else None
