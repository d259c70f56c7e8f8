"""`dynconv bench kernels --predict`: floors, expected times and resources, without a GPU."""

from collections.abc import Callable, Iterator, Sequence
from itertools import chain, groupby, product
from math import inf
from operator import itemgetter
from pathlib import Path
from textwrap import fill

from dynconv.errors import UserError
from dynconv.kernels.cuda.build import inline_headers
from dynconv.kernels.cuda.grids import BAND, STEPS, TILE
from dynconv.lab import ledger
from dynconv.lab.bench.cases import Case
from dynconv.lab.bench.kernels import roofline
from dynconv.lab.bench.kernels.calls import list_launches
from dynconv.lab.bench.table import WIDTH, Column, bench_table, shape_title
from dynconv.lab.nvidia import nvdisasm, nvrtc

ARCHITECTURES = "sm_75", "sm_80", "sm_90"


def kernel_resources(cases: Sequence[Case]) -> list[dict]:
    """Return what every kernel that the cases launch needs, on the architectures that launch it.

    Dynamic shared memory is the most that any launch takes. Instructions are counted on sm_90: in
    the loop over rows, for TILE rows; in TaLK's loop over positions, for one position; in the loop
    over tiles, for one tile, followed by the instructions around the loop. They are None for other
    kernels, and where nvdisasm is missing.
    """
    used: dict[str, dict[str, set[str]]] = {}  # by source and kernel
    dynamic: dict[str, int] = {}  # by kernel
    products: dict[str, tuple[int, int]] = {}  # by kernel: a loop's fewest, and tiles or positions
    for case, name in product(cases, ARCHITECTURES):
        for launch in chain(*list_launches(case, int(name.removeprefix("sm_"))).values()):
            kernel = launch.kernel
            used.setdefault(launch.source, {}).setdefault(kernel, set()).add(name)
            dynamic[kernel] = max(launch.shared, dynamic.get(kernel, 0))
            if launch.name in roofline.TILED:
                products[kernel] = TILE * TILE * launch.template[1], 1
            elif launch.name in roofline.COLUMNS:
                least = roofline.COLUMNS[launch.name] * launch.template[1]
                products[kernel] = STEPS * least, STEPS
            elif launch.name in roofline.BANDS:
                _, V, D, *_ = launch.template
                tiles = 1 if roofline.BANDS[launch.name].computes == "weight gradient" else D
                products[kernel] = tiles * D * V, tiles  # in one turn of the loop
    rows = []
    for source, kernels in used.items():
        compiled = {
            name: nvrtc.compile_program(
                inline_headers(source), [one for one in kernels if name in kernels[one]], name
            )
            for name in ARCHITECTURES
        }
        loops = {} if nvdisasm.why_unavailable() else nvdisasm.main_loops(compiled["sm_90"])
        for kernel, names in kernels.items():
            takes = {
                name: one.kernels[kernel]._asdict()
                for name, one in compiled.items()
                if name in names
            }
            row = {"source": source, "kernel": kernel, "takes": takes}
            row |= {"dynamic_shared": dynamic[kernel], "instructions": None, "around": None}
            least, tiles = products.get(kernel, (inf, 1))
            loop = loops.get(kernel)
            if loop and loop.multiply_adds >= least:
                row["instructions"] = -(-loop.instructions // tiles)
                row["around"] = loop.around if "_band<" in kernel else None
            rows.append(row)
    return rows


def predict_cases(cases: Sequence[Case], command: str, output: Path | None) -> Iterator[str]:
    """Predict floors and resources without a GPU and write them; yield what to print.

    output  by default data/results/kernels-predicted.json
    """
    if reason := nvrtc.why_unavailable():
        raise UserError(f"the kernels cannot be compiled: {reason}")
    output = ledger.output_path("kernels-predicted", output)
    kernels = kernel_resources(cases)
    rows = [
        case.describe() | {"direction": direction} | limits
        for case in cases
        for direction, limits in roofline.predict_case(case, instruction_counts(kernels)).items()
    ]
    numbers = {
        "assumed": {
            "copy_bytes_per_s": roofline.COPY_BYTES_PER_S,
            "float32_operations_per_s": roofline.FLOAT32_OPERATIONS_PER_S,
            "tensor_core_operations_per_s": roofline.TENSOR_CORE_OPERATIONS_PER_S,
            "multiprocessors": roofline.MULTIPROCESSORS,
            "clock_hz": roofline.CLOCK_HZ,
            "schedulers": roofline.SCHEDULERS,
            "launch_s": roofline.LAUNCH_S,
            "reached": roofline.REACHED_SHARE,
        },
        "rows": rows,
        "kernels": kernels,
    }
    what = "expected, not measured: floors of the CUDA kernels on an H200, and what they take"
    device = "NVIDIA H200, as assumed"
    versions = {"nvrtc": nvrtc.version()}
    record = ledger.new_record(what, command, numbers, device=device, versions=versions)
    ledger.write(output, record)
    yield floors_table(rows)
    yield resources_table(kernels)
    yield f"\nwritten to {output}"


def instruction_counts(kernels: Sequence[dict]) -> dict[str, roofline.Instructions]:
    """Return the instructions of the kernels for which they are known."""
    return {
        row["kernel"]: roofline.Instructions(row["instructions"], row["around"] or 0)
        for row in kernels
        if row["instructions"]
    }


def floors_table(rows: Sequence[dict]) -> str:
    """Return a table per shape and dtype, with a line per operator, K and direction."""
    about = (
        f"Expected on an H200, not measured: {roofline.COPY_BYTES_PER_S / 1e12:g} TB/s copied, "
        f"{roofline.FLOAT32_OPERATIONS_PER_S / 1e12:g} TFLOP/s, "
        f"{roofline.TENSOR_CORE_OPERATIONS_PER_S / 1e12:g} on tensor cores, "
        f"{roofline.MULTIPROCESSORS} multiprocessors with "
        f"{roofline.CLOCK_HZ / 1e9:g} GHz. Microseconds that the bytes, the operations, the "
        "pipeline to L1 and shared memory, and the issue of the loops over rows or tiles, "
        f"{roofline.SCHEDULERS} instructions a cycle, take at least; which binds, the longest of "
        f"them; expected: that / {roofline.REACHED_SHARE:g}, and "
        f"{roofline.LAUNCH_S * 1e6:g} for each launch."
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

    blocks = [
        bench_table(title, label, 33, columns, list(block))
        for title, block in groupby(rows, shape_title)
    ]
    return "\n".join([fill(about, WIDTH), *blocks])


def resources_table(kernels: Sequence[dict]) -> str:
    """Return a line per kernel: what it needs, at most, on any architecture."""
    about = (
        f"Registers of a thread on {', '.join(ARCHITECTURES)}; bytes of a thread that are spilled, "
        "and of its stack, and bytes of shared memory of a block that the source declares, the "
        "most of the three; bytes of dynamic shared memory of the largest block; instructions of "
        f"{ARCHITECTURES[-1]} for {TILE} rows, for a position of TaLK, or for a tile of {BAND} "
        "positions on tensor cores and around the loop over tiles. - where an architecture takes "
        "another kernel."
    )

    def most(name: str) -> Callable[[dict], int]:
        return lambda row: max(used[name] for used in row["takes"].values())

    def registers(row: dict) -> str:
        takes = row["takes"]
        return " ".join(str(takes[a]["registers"]) if a in takes else "-" for a in ARCHITECTURES)

    columns = [
        Column("registers", 12, registers),
        Column("spill", 7, most("spilled")),
        Column("stack", 7, most("stack")),
        Column("static", 8, most("shared")),
        Column("dynamic", 9, itemgetter("dynamic_shared")),
        Column("loop", 7, itemgetter("instructions")),
        Column("around", 7, itemgetter("around")),
    ]
    return "\n" + bench_table(fill(about, WIDTH), itemgetter("kernel"), 43, columns, kernels)
