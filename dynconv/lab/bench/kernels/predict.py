"""`dynconv bench kernels --plan`: floors, expected times and resources, without a GPU."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, groupby
from math import inf
from operator import itemgetter
from pathlib import Path
from textwrap import fill

from dynconv.errors import UserError
from dynconv.kernels.cuda.build import code
from dynconv.kernels.cuda.launches import TILE
from dynconv.lab import ledger
from dynconv.lab.bench.cases import Case
from dynconv.lab.bench.kernels import roofline
from dynconv.lab.bench.kernels.calls import list_launches
from dynconv.lab.bench.table import WIDTH, Column, size, table
from dynconv.lab.simulate import nvdisasm, nvrtc

ARCHITECTURES = "sm_75", "sm_80", "sm_90"


def resources(cases: Sequence[Case]) -> list[dict]:
    """Return what every kernel that the cases launch needs on each architecture.

    Dynamic shared memory is that of the launch which takes the most. Instructions are those of the
    loop over taps on sm_90, for TILE taps; None for other kernels, and without nvdisasm.
    """
    dynamic: dict[str, dict[str, int]] = defaultdict(dict)  # by source and kernel
    products: dict[str, int] = {}  # that TILE taps take at least, by kernel
    for case in cases:
        for launch in chain(*list_launches(case).values()):
            kernels = dynamic[launch.source]
            kernels[launch.kernel] = max(launch.shared, kernels.get(launch.kernel, 0))
            if launch.name in roofline.TILED:
                products[launch.kernel] = TILE * TILE * launch.template[1]
    rows = []
    for source, kernels in dynamic.items():
        compiled = [nvrtc.resources(code(source), list(kernels), a) for a in ARCHITECTURES]
        loops = {} if nvdisasm.why_unavailable() else nvdisasm.main_loops(compiled[-1])
        for kernel, shared in kernels.items():
            pairs = zip(ARCHITECTURES, compiled, strict=True)
            takes = {architecture: one.kernels[kernel]._asdict() for architecture, one in pairs}
            row = {"source": source, "kernel": kernel, "takes": takes, "dynamic_shared": shared}
            loop = loops.get(kernel)
            taps = loop and loop.multiply_adds >= products.get(kernel, inf)
            rows.append(row | {"instructions": loop.instructions if taps else None})
    return rows


def predict_cases(cases: Sequence[Case], command: str, output: Path | None) -> Iterator[str]:
    """Predict floors and resources without a GPU and write them; yield what to print.

    output: by default data/results/kernels-plan.json
    """
    if reason := nvrtc.why_unavailable():
        raise UserError(f"the kernels cannot be compiled: {reason}")
    output = ledger.output_path("kernels-plan", output)
    kernels = resources(cases)
    rows = [
        case.describe() | {"direction": direction} | limits
        for case in cases
        for direction, limits in roofline.predict_case(case, tap_loops(kernels)).items()
    ]
    numbers = {
        "assumed": {
            "copy_bytes_per_s": roofline.COPY,
            "float32_operations_per_s": roofline.FMA,
            "multiprocessors": roofline.MULTIPROCESSORS,
            "clock_hz": roofline.CLOCK,
            "schedulers": roofline.SCHEDULERS,
            "launch_s": roofline.LAUNCH,
            "reached": roofline.REACHED,
        },
        "rows": rows,
        "kernels": kernels,
    }
    what = "expected, not measured: floors of the CUDA kernels on an H200, and what they take"
    device, versions = "NVIDIA H200, as assumed", {"nvrtc": nvrtc.version()}
    report = ledger.entry(what, command, numbers, device=device, versions=versions)
    ledger.write(output, report)
    yield floors_table(rows)
    yield resources_table(kernels)
    yield f"\nwritten to {output}"


def tap_loops(kernels: Sequence[dict]) -> dict[str, int]:
    """Return the instructions for TILE taps of the kernels for which they are known."""
    return {row["kernel"]: row["instructions"] for row in kernels if row["instructions"]}


def floors_table(rows: Sequence[dict]) -> str:
    """Return a table per shape and dtype, with a line per operator, K and direction."""
    about = (
        f"Expected on an H200, not measured: {roofline.COPY / 1e12:g} TB/s copied, "
        f"{roofline.FMA / 1e12:g} TFLOP/s, {roofline.MULTIPROCESSORS} multiprocessors with "
        f"{roofline.CLOCK / 1e9:g} GHz. Microseconds that the bytes, the operations, the "
        "pipeline to L1 and shared memory, and the issue of the loops over taps, "
        f"{roofline.SCHEDULERS} instructions a cycle, take at least; which binds, the longest of "
        f"them; expected: that / {roofline.REACHED:g}, and {roofline.LAUNCH * 1e6:g} for each "
        "launch."
    )
    if reason := nvdisasm.why_unavailable():
        about += f" Instructions are not counted ({reason})."

    def binds(row: dict) -> str:
        longest = max(row["us"], key=row["us"].get)
        return {"operations": "FLOP"}.get(longest, longest)

    columns = [
        Column("MB", 7, lambda row: row["bytes"] / 1e6),
        Column("GFLOP", 7, lambda row: row["operations"] / 1e9),
        Column("bytes", 6, lambda row: row["us"]["bytes"]),
        Column("FLOP", 6, lambda row: row["us"]["operations"]),
        Column("shared", 7, lambda row: row["us"]["shared"]),
        Column("issue", 6, lambda row: row["us"].get("issue")),
        Column("binds", 8, binds),
        Column("launches", 9, itemgetter("launches")),
        Column("expected", 9, itemgetter("expected_us")),
    ]

    def label(row: dict) -> str:
        return f"{row['operator']:21}{row['K']:>3} {row['direction']}"

    blocks = [table(title, label, 33, columns, list(block)) for title, block in groupby(rows, size)]
    return "\n".join([fill(about, WIDTH), *blocks])


def resources_table(kernels: Sequence[dict]) -> str:
    """Return a line per kernel: what it needs, at most, on any architecture."""
    about = (
        f"Registers of a thread on {', '.join(ARCHITECTURES)}; bytes of a thread that are spilled, "
        "and of its stack, and bytes of shared memory of a block that the source declares, the "
        "most of the three; bytes of dynamic shared memory of the largest block; instructions of "
        f"{ARCHITECTURES[-1]} for {TILE} taps."
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
        Column("taps", 7, itemgetter("instructions")),
    ]
    return "\n" + table(fill(about, WIDTH), itemgetter("kernel"), 44, columns, kernels)
