"""`dynconv bench ops`: times all implementations of the operators, a copy and attention."""

from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from dynconv.dtypes import dtype_name
from dynconv.errors import UserError
from dynconv.lab import ledger
from dynconv.lab.bench.cases import Shape, parse_shape
from dynconv.lab.bench.implementations import choose_implementations, iter_implementations
from dynconv.lab.bench.kernels.gpu_clock import GpuClock
from dynconv.lab.bench.measure import (
    CpuClock,
    measure,
    median_and_range,
    paired_ratios,
    round_floats,
)
from dynconv.lab.bench.table import Column, bench_table, format_number
from dynconv.ops.registry import OPERATORS


def bench_ops(
    shapes: Sequence[str],
    operators: Sequence[str] | None,
    impl: Sequence[str] | None,
    *,
    kernel_size: int,
    rounds: int,
    dtype: torch.dtype,
    device: str,
    output: Path | None,
    say: Callable[[str], None],
) -> None:
    """Measure shape by shape, and write all numbers to `output`.

    device  "cpu", or "cuda" for the current GPU
    output  by default data/results/bench-ops.json, or bench-ops.json outside the repository

    Raises UserError for a shape, operator, implementation or kernel size that cannot be measured,
    and if there is no GPU for "cuda".
    """
    if device == "cuda" and not torch.cuda.is_available():
        raise UserError("no GPU here: leave out --device cuda")
    if kernel_size < 3 or kernel_size % 2 == 0:
        raise UserError(f"kernel size {kernel_size} must be odd and at least 3")
    sizes = [parse_shape(text) for text in shapes]
    chosen = choose_implementations(operators or list(OPERATORS), impl)
    output = ledger.output_path("bench-ops", output)
    threads = torch.get_num_threads()
    options = ["--shapes", *shapes, "--operators", *chosen, *(["--impl", *impl] if impl else [])]
    options += ["--kernel-size", kernel_size, "--rounds", rounds, "--threads", threads]
    options += ["--dtype", dtype_name(dtype), "--device", device]
    numbers = {"threads": threads, "dtype": dtype_name(dtype), "kernel_size": kernel_size}
    numbers["shapes"] = []
    what = "operators, forward and with backward to all inputs, beside a copy and attention"
    clock = GpuClock() if device == "cuda" else CpuClock()
    command = ledger.command_line("bench", "ops", *options)
    record = ledger.new_record(what, command, numbers, **clock.about())
    say(describe_measurement(record, rounds, clock.slow_seconds))
    for shape in sizes:
        measured = measure_shape(shape, kernel_size, chosen, rounds, dtype, clock)
        numbers["shapes"].append(measured)
        say(shape_table(measured))
    ledger.write(output, record)
    load = record["load"]
    say(f"\nload {load['before']} before, {load['after']} after; written to {output}")


def measure_shape(
    shape: Shape,
    K: int,
    chosen: dict[str, list[str]],
    rounds: int,
    dtype: torch.dtype = torch.float32,
    clock: CpuClock | GpuClock | None = None,
) -> dict:
    """Return the numbers of one shape, as they are written to the file."""
    clock = clock or CpuClock()
    rows, runs = [], []
    for one in iter_implementations(shape, K, chosen, dtype, clock.device):
        directions = ["forward"] if one.gradient is None else ["forward", "forward_backward"]
        rows.append({"operator": one.case.operator, "impl": one.impl or None})
        runs += [(rows[-1], one.measurement(direction)) for direction in directions]
    size = one.case.x_bytes
    with torch.no_grad(), torch.cuda.stream(clock.stream):
        measure([run for _, run in runs], clock, rounds, f"T = {shape.T:,}")
    times = {(run.operator, run.direction): run.times for _, run in runs}
    for row, run in runs:
        if not run.times:
            row["left_out"] = run.note
            continue
        numbers = median_and_range("ms", [second * 1e3 for second in run.times])
        numbers["rounds"] = len(run.times)
        numbers |= median_and_range(
            "times_copy", paired_ratios(run.times, times["copy", "forward"])
        )
        numbers |= median_and_range(
            "attention_by_this", paired_ratios(times["attention", run.direction], run.times)
        )
        numbers["peak"] = run.peak / size
        if run.saved is not None and run.direction == "forward_backward":
            numbers["saved"] = run.saved / size
        row[run.direction] = round_floats(numbers)
    return {**shape._asdict(), "x_bytes": size, "results": rows}


def describe_measurement(record: dict, rounds: int, slow: float) -> str:
    """Return where and how the numbers were measured, and what the columns mean."""
    numbers = record["numbers"]
    K, threads = numbers["kernel_size"], numbers["threads"]
    return "\n".join(
        [
            ledger.describe_origin(record),
            f"{threads} thread{'s' if threads > 1 else ''}, load {record['load']['before']}",
            f"{numbers['dtype']}, K = {K} centred on each position, attention without a mask",
            f"ms: medians of {rounds} rounds by turns, fewer if a call takes {slow:g} s",
            "x copy, faster: medians over common rounds of time / copy's, of attention's / time;",
            "        with fewer than 3 common rounds, of the medians",
            "memory: multiples of x beyond the inputs; PyTorch's peak forward and with backward,",
            "        and what is saved between the two",
        ]
    )


def shape_table(shape: dict) -> str:
    """Return the table of one shape: a line for each implementation, a note if it was left out."""
    B, T, C, H = (f"{shape[size]:,}" for size in "BTCH")
    directions = "forward", "forward_backward"

    def column(title: str, width: int, key: str, direction: str) -> Column:
        return Column(title, width, lambda row: row.get(direction, {}).get(key))

    def rounds(row: dict) -> str | None:
        return "/".join(str(row[one]["rounds"]) for one in directions if one in row) or None

    columns = []
    for direction in directions:
        columns += [
            column("ms", 9, "ms", direction),
            column("x copy", 7, "times_copy", direction),
            column("faster", 7, "attention_by_this", direction),
        ]
    columns += [
        column("fwd", 6, "peak", "forward"),
        column("both", 6, "peak", "forward_backward"),
        column("saved", 6, "saved", "forward_backward"),
        Column("rounds", 7, rounds),
    ]
    title = (
        f"B = {B}, T = {T}, C = {C}, H = {H}; x has {format_number(shape['x_bytes'] / 1e6)} MB\n"
    )
    title += f"{'':29}{'forward':>23}{'forward + backward':>23}{'memory':>18}"
    return bench_table(
        title,
        lambda row: f"{row['operator']} {row['impl'] or ''}".strip(),
        29,
        columns,
        shape["results"],
        note="left_out",
    )
