"""`dynconv bench kernels`: checks CUDA kernels against float64, and times those that pass.

A kernel's time is compared with its floor, a copy, attention, PyTorch's implementations, and the
first version in its source. The kernels of averaging attention are left out.
"""

from collections.abc import Callable, Sequence
from operator import itemgetter
from pathlib import Path
from textwrap import wrap

import torch

from dynconv.dtypes import dtype_name
from dynconv.errors import UserError, name_hint, quoted
from dynconv.kernels.cuda import build
from dynconv.kernels.cuda.plan import CUDA_TYPES
from dynconv.lab import ledger
from dynconv.lab.bench.cases import SOFTMAX_CONV, Case, parse_shape
from dynconv.lab.bench.kernels.gpu_bench import GpuBench
from dynconv.lab.bench.kernels.gpu_clock import GpuClock
from dynconv.lab.bench.kernels.predict import predict_cases
from dynconv.lab.bench.table import WIDTH, Column, bench_table, shape_title

DTYPES = {dtype_name(dtype): dtype for dtype in CUDA_TYPES}
OPERATORS = ["light_conv", "dynamic_conv", SOFTMAX_CONV, "talk_conv"]
ABOUT = (
    "us: medians of graphs replayed in turns, each with a cold L2; a graph of short calls has "
    "several, each on inputs of its own; GB/s: by the bytes of the "
    "floor; copy: share of the GB/s of a copy of x; floor: times the floor; attn, eager: times "
    "faster than attention, and than the best of PyTorch's eager implementations; memory: "
    "multiples of x beyond the inputs, backward with what was saved; error: of the norm, against "
    "float64. launch: writes one number. PyTorch's implementations with DropConnect draw in "
    "the graph: two kernels more."
)


def make_cases(
    shapes: Sequence[str], dtypes: Sequence[str], operators: Sequence[str], sizes: Sequence[str]
) -> list[Case]:
    """Return all cases, shape by shape and dtype by dtype. Raises UserError for an unknown name."""
    for kind, names, known in (("operator", operators, OPERATORS), ("dtype", dtypes, DTYPES)):
        for name in names:
            if name not in known:
                hint = name_hint(name, known, "there are")
                raise UserError(f"no {kind} {quoted(name)} here; {hint}")
    for K in sizes:
        if not K.isdecimal() or int(K) < 3 or int(K) % 2 == 0:
            raise UserError(f"kernel size {quoted(K)} must be odd and at least 3")
    parsed = [parse_shape(text) for text in shapes]
    return [
        Case(operator, int(K), DTYPES[name], shape)
        for shape in parsed
        for name in dtypes
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
    predict: bool,
    output: Path | None,
    say: Callable[[str], None],
) -> int:
    """Measure the kernels, or predict them without a GPU (`predict`); return how many are wrong."""
    operators = operators or OPERATORS
    cases = make_cases(shapes, dtypes, operators, kernel_sizes)
    options = ["--shapes", *shapes, "--dtypes", *dtypes, "--operators", *operators]
    options += ["--kernel-sizes", *kernel_sizes, "--rounds", rounds]
    command = ledger.command_line("bench", "kernels", *(["--predict"] if predict else []), *options)
    if predict:
        for text in predict_cases(cases, command, output):
            say(text)
        return 0
    if reason := build.why_unavailable():
        raise UserError(
            f"no CUDA kernels here: {reason}; --predict estimates their times without a GPU"
        )
    gpu_bench = GpuBench(GpuClock(), torch.ops.dynconv, rounds)
    return measure_cases(gpu_bench, cases, command, output, say)


def measure_cases(
    gpu_bench: GpuBench,
    cases: Sequence[Case],
    command: str,
    output: Path | None,
    say: Callable[[str], None],
) -> int:
    """Measure all cases; return how many kernels are wrong.

    The file, by default data/results/kernels-DEVICE.json, is written after each operator.
    """
    clock, rows = gpu_bench.clock, []
    output = ledger.output_path(f"kernels-{ledger.slug(clock.name)}", output)
    what = "CUDA kernels as graphs on a cold L2, beside floors, a copy, attention and PyTorch"
    record = ledger.new_record(what, command, {"rows": rows}, **clock.about())
    with torch.no_grad(), torch.cuda.stream(clock.stream):
        where = f"{ledger.describe_origin(record)}, load {record['load']['before']}"
        say("\n".join([*wrap(where, WIDTH), "", *wrap(ABOUT, WIDTH)]))
        for measured in gpu_bench.tables(cases):
            rows += measured
            ledger.write(output, record)
            say(operator_table(measured))
    wrong = sum(row["right"] is False for row in rows)
    say(f"\n{wrong} wrong; load {record['load']['after']}; written to {output}")
    return wrong


def operator_table(rows: Sequence[dict]) -> str:
    """Return the rows of one operator as a table, with their notes below."""
    first = rows[0]
    title = f"{first['operator']} {first['K']}" if first["K"] else "copy and attention"

    def error(row: dict) -> str | None:
        value = row["error"]
        return f"{value:.1e}" if isinstance(value, float) else value

    columns = [
        Column("us", 11, lambda row: row["ms"] and row["ms"] * 1e3),
        Column("GB/s", 8, itemgetter("gb_per_s")),
        Column("copy", 7, itemgetter("copy_share")),
        Column("floor", 10, itemgetter("times_floor")),
        Column("attn", 8, itemgetter("attention_by_this")),
        Column("eager", 7, itemgetter("eager_by_this")),
        Column("memory", 7, itemgetter("peak")),
        Column("error", 9, error),
        Column("rounds", 7, itemgetter("rounds")),
    ]
    return bench_table(
        f"{title}, {shape_title(first)}",
        lambda row: f"{row['impl'] or row['operator']:15}{row['direction']}",
        24,
        columns,
        rows,
    )
