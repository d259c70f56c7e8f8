"""`dynconv bench kernels`: checks each CUDA kernel, and then times it.

Only a kernel that agrees with float64 arithmetic is timed. It is compared with its floor, a copy,
attention, PyTorch's implementations, and the first version in its source.
"""

import re
import time
from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path

import torch

from dynconv.errors import UserError
from dynconv.kernels.cuda import build
from dynconv.kernels.cuda.plan import NUMBERS
from dynconv.lab import ledger
from dynconv.lab.bench.cases import SEEDED, Case, Shape, parse_shape
from dynconv.lab.bench.cuda import floors
from dynconv.lab.bench.cuda.contest import Bench
from dynconv.lab.bench.cuda.gpu import Gpu
from dynconv.lab.bench.cuda.plan import plan as work_out
from dynconv.lab.bench.cuda.tables import header, layer_table, operator_table

DTYPES = {str(dtype).removeprefix("torch."): dtype for dtype in NUMBERS}
OPERATORS = ["light_conv", "dynamic_conv", SEEDED, "talk_conv"]
LAYER = Shape(112, 32, 1024, 16), Shape(10, 1000, 1024, 16)


def chosen(
    shapes: Sequence[str], dtypes: Sequence[str], operators: Sequence[str], sizes: Sequence[str]
) -> list[Case]:
    """Return all cases, shape by shape and dtype by dtype; UserError for an unknown name."""
    for kind, names, known in (("operator", operators, OPERATORS), ("dtype", dtypes, DTYPES)):
        for name in names:
            if name not in known:
                raise UserError(f"no {kind} {name!r} here: there are {', '.join(known)}")
    for K in sizes:
        if not K.isdecimal() or int(K) < 3 or int(K) % 2 == 0:
            raise UserError(f"kernel size {K!r} must be an odd number of at least 3")
    every = [(parse_shape(text), DTYPES[name]) for text in shapes for name in dtypes]
    return [
        Case(operator, int(K), dtype, shape)
        for shape, dtype in every
        for operator in operators
        for K in sizes
    ]


def bench_kernels(
    shapes: Sequence[str],
    dtypes: Sequence[str],
    operators: Sequence[str] | None,
    kernel_sizes: Sequence[str],
    *,
    rounds: int,
    plan: bool,
    output: Path | None,
    say: Callable[[str], None],
) -> int:
    """Measure, or with `plan` work out what is known before; return how many kernels are wrong."""
    operators = operators or OPERATORS
    cases = chosen(shapes, dtypes, operators, kernel_sizes)
    options = {"shapes": shapes, "dtypes": dtypes, "operators": operators}
    options |= {"kernel-sizes": kernel_sizes, "rounds": [str(rounds)]}
    command = " ".join(f"--{name} {','.join(given)}" for name, given in options.items())
    if plan:
        for text in work_out(cases, f"dynconv bench kernels --plan {command}", output):
            say(text)
        return 0
    if reason := build.missing():
        raise UserError(
            f"no CUDA kernels here: {reason}; without a GPU, --plan tells what to expect"
        )
    bench = Bench(Gpu(), torch.ops.dynconv, rounds)
    return measure(bench, cases, f"dynconv bench kernels {command}", output, say)


def measure(
    bench: Bench, cases: Sequence[Case], command: str, output: Path | None, say: Callable
) -> int:
    """Measure all cases; return how many kernels are wrong.

    The file, by default data/results/kernels-DEVICE.json, is written after each operator.
    """
    from tqdm import tqdm

    gpu = bench.gpu
    slug = re.sub("[^a-z0-9]+", "-", gpu.name.lower()).strip("-")
    output = ledger.output_path(f"kernels-{slug}", output)
    numbers = {"rows": [], "layer": []}
    what = "CUDA kernels as graphs on a cold L2, beside floors, a copy, attention and PyTorch"
    report = ledger.entry(what, command, numbers, **gpu.about())

    def report_rows(rows: list[dict], where: str = "rows") -> None:
        numbers[where] += rows
        numbers["copy_gb_per_s"] = bench.copied
        ledger.write(output, report)
        bar.clear()
        say(layer_table(rows) if where == "layer" else operator_table(rows))
        bar.update()

    with torch.no_grad(), gpu.working():
        largest = max(cases, key=lambda case: floors.moved(case)["forward"])
        with tqdm(total=0, disable=True) as bar:
            bench.calibrate(largest.shape, largest.dtype)
            say(header(report, bench.copied))
        for shape, of_shape in groupby(cases, lambda case: case.shape):
            every, start = list(of_shape), time.perf_counter()
            total = len(every) + len({case.dtype for case in every})
            with tqdm(
                total=total, unit=" runs", disable=None, leave=False, desc=f"T = {shape.T:,}"
            ) as bar:
                for dtype, group in groupby(every, lambda case: case.dtype):
                    report_rows(bench.references(shape, dtype))
                    for case in group:
                        report_rows(bench.operator(case))
            say(f"\n{time.perf_counter() - start:.0f} s for this shape")
        with tqdm(total=0, disable=True) as bar:
            for shape in LAYER:
                for dtype in (torch.float32, torch.bfloat16):
                    report_rows(bench.layer(shape, dtype), "layer")
    wrong = [row for row in numbers["rows"] if row["right"] is False]
    say(f"\n{len(wrong)} wrong; load {report['load']['after']}; written to {output}")
    return len(wrong)
