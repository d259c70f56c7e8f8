"""`dynconv bench kernels --plan`: floors, expected times and resources, without a GPU."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, groupby
from operator import itemgetter
from pathlib import Path
from textwrap import fill

from dynconv.errors import UserError
from dynconv.kernels.cuda.build import code
from dynconv.lab import ledger
from dynconv.lab.bench.cases import Case
from dynconv.lab.bench.kernels import roofline
from dynconv.lab.bench.kernels.calls import list_launches
from dynconv.lab.bench.table import WIDTH, Column, size, table
from dynconv.lab.simulate import nvrtc

ARCHITECTURES = "sm_75", "sm_80", "sm_90"


def resources(cases: Sequence[Case]) -> list[dict]:
    """Return what every kernel that the cases launch needs on each architecture.

    Dynamic shared memory is that of the launch which takes the most.
    """
    dynamic: dict[str, dict[str, int]] = defaultdict(dict)  # by source and kernel
    for case in cases:
        for launch in chain(*list_launches(case).values()):
            kernels = dynamic[launch.source]
            kernels[launch.kernel] = max(launch.shared, kernels.get(launch.kernel, 0))
    rows = []
    for source, kernels in dynamic.items():
        compiled = [nvrtc.resources(code(source), list(kernels), a).kernels for a in ARCHITECTURES]
        for kernel, shared in kernels.items():
            pairs = zip(ARCHITECTURES, compiled, strict=True)
            takes = {architecture: used[kernel]._asdict() for architecture, used in pairs}
            row = {"source": source, "kernel": kernel, "takes": takes}
            rows.append(row | {"dynamic_shared": shared})
    return rows


def predict_cases(cases: Sequence[Case], command: str, output: Path | None) -> Iterator[str]:
    """Predict floors and resources without a GPU and write them; yield what to print.

    output: by default data/results/kernels-plan.json
    """
    if reason := nvrtc.why_unavailable():
        raise UserError(f"the kernels cannot be compiled: {reason}")
    output = ledger.output_path("kernels-plan", output)
    rows = [
        case.describe() | {"direction": direction} | limits
        for case in cases
        for direction, limits in roofline.predict_case(case).items()
    ]
    numbers = {
        "assumed": {
            "copy_bytes_per_s": roofline.COPY,
            "float32_operations_per_s": roofline.FMA,
            "multiprocessors": roofline.MULTIPROCESSORS,
            "clock_hz": roofline.CLOCK,
            "launch_s": roofline.LAUNCH,
            "reached": roofline.REACHED,
        },
        "rows": rows,
    }
    what = "expected, not measured: floors of the CUDA kernels on an H200, and what they take"
    device, versions = "NVIDIA H200, as assumed", {"nvrtc": nvrtc.version()}
    report = ledger.entry(what, command, numbers, device=device, versions=versions)
    yield floors_table(rows)
    numbers["kernels"] = resources(cases)
    ledger.write(output, report)
    yield resources_table(numbers["kernels"])
    yield f"\nwritten to {output}"


def floors_table(rows: Sequence[dict]) -> str:
    """Return a table per shape and dtype, with a line per operator, K and direction."""
    about = (
        f"Expected on an H200, not measured: {roofline.COPY / 1e12:g} TB/s copied, "
        f"{roofline.FMA / 1e12:g} TFLOP/s, {roofline.MULTIPROCESSORS} multiprocessors with "
        f"{roofline.CLOCK / 1e9:g} GHz. Microseconds that the bytes, the operations, and the "
        "pipeline to L1 and shared memory take at least; expected: the longest of them / "
        f"{roofline.REACHED:g}, and {roofline.LAUNCH * 1e6:g} for each launch."
    )
    columns = [
        Column("MB", 9, lambda row: row["bytes"] / 1e6),
        Column("GFLOP", 9, lambda row: row["operations"] / 1e9),
        Column("bytes", 9, lambda row: row["us"]["bytes"]),
        Column("FLOP", 9, lambda row: row["us"]["operations"]),
        Column("shared", 9, lambda row: row["us"]["shared"]),
        Column("launches", 9, itemgetter("launches")),
        Column("expected", 9, itemgetter("expected_us")),
    ]

    def label(row: dict) -> str:
        return f"{row['operator']:21}{row['K']:>3} {row['direction']}"

    blocks = [table(title, label, 34, columns, list(block)) for title, block in groupby(rows, size)]
    return "\n".join([fill(about, WIDTH), *blocks])


def resources_table(kernels: Sequence[dict]) -> str:
    """Return a line per kernel: what it needs, at most, on any architecture."""
    about = (
        f"Registers of a thread on {', '.join(ARCHITECTURES)}; bytes of a thread that are spilled, "
        "and of its stack, and bytes of shared memory of a block that the source declares, the "
        "most of the three; bytes of dynamic shared memory of the largest block."
    )

    def most(name: str) -> Callable[[dict], int]:
        return lambda row: max(used[name] for used in row["takes"].values())

    def registers(row: dict) -> str:
        return " ".join(str(used["registers"]) for used in row["takes"].values())

    columns = [
        Column("registers", 12, registers),
        Column("spill", 7, most("spilled")),
        Column("stack", 7, most("stack")),
        Column("static", 8, most("shared")),
        Column("dynamic", 9, itemgetter("dynamic_shared")),
    ]
    return "\n" + table(fill(about, WIDTH), itemgetter("kernel"), 44, columns, kernels)
