"""`dynconv bench kernels --plan`: floors, expected times and resources, without a GPU."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import chain, groupby
from math import prod
from operator import itemgetter
from pathlib import Path
from textwrap import fill

from dynconv.errors import UserError
from dynconv.kernels.cuda.build import code
from dynconv.lab import ledger
from dynconv.lab.bench.cases import Case
from dynconv.lab.bench.cuda.floors import (
    CLOCK,
    COPY,
    FMA,
    LAUNCH,
    MULTIPROCESSORS,
    REACHED,
    known,
    launches,
)
from dynconv.lab.bench.table import Column, table
from dynconv.lab.simulate import nvrtc

REGISTERS, SHARED, THREADS, BLOCKS = 65536, 228 * 1024, 2048, 32  # of a multiprocessor of sm_90
RESERVED = 1024  # bytes of shared memory that CUDA takes for itself in each block
ARCHITECTURES = "sm_75", "sm_80", "sm_90"


def resident(used: nvrtc.Resources, threads: int, dynamic: int) -> int:
    """Return how many warps a multiprocessor of sm_90 holds at a time."""
    warps, registers = threads // 32, -(-used.registers * 32 // 256) * 256  # in units of 256 a warp
    held = REGISTERS // 4 // registers * 4  # by four schedulers with a quarter of the registers
    shared = used.shared + dynamic + RESERVED
    return warps * min(held // warps, SHARED // shared, THREADS // threads, BLOCKS)


def resources(cases: Sequence[Case]) -> list[dict]:
    """Return what every kernel that the cases launch needs on each architecture.

    For each size of block also the threads, dynamic shared bytes, resident warps, and the K and T
    that use it.
    """
    ways = defaultdict(lambda: defaultdict(set))
    for case in cases:
        for one in chain(*launches(case).values()):
            block = prod(one.block), one.shared
            ways[one.source, one.kernel][block].add((case.K, case.shape.T))
    found = {}
    for source in {source for source, _ in ways}:
        names = [kernel for of, kernel in ways if of == source]
        for architecture in ARCHITECTURES:
            compiled = nvrtc.resources(code(source), names, architecture).kernels
            for name, used in compiled.items():
                found.setdefault(name, {})[architecture] = used
    return [
        {
            "source": source,
            "kernel": kernel,
            "takes": {name: used._asdict() for name, used in found[kernel].items()},
            "launches": [
                {
                    "threads": threads,
                    "dynamic_shared": dynamic,
                    "resident_warps": resident(found[kernel]["sm_90"], threads, dynamic),
                    "for": [{"K": K, "T": T} for K, T in sorted(of)],
                }
                for (threads, dynamic), of in blocks.items()
            ],
        }
        for (source, kernel), blocks in ways.items()
    ]


def plan(cases: Sequence[Case], command: str, output: Path | None) -> Iterator[str]:
    """Work out floors and resources without a GPU and write them; yield what to print.

    output: by default data/results/kernels-plan.json
    """
    if reason := nvrtc.missing():
        raise UserError(f"the kernels cannot be compiled: {reason}")
    output = ledger.output_path("kernels-plan", output)
    rows = [
        case.named() | {"direction": direction} | of
        for case in cases
        for direction, of in known(case).items()
    ]
    numbers = {
        "assumed": {
            "copy_bytes_per_s": COPY,
            "float32_operations_per_s": FMA,
            "multiprocessors": MULTIPROCESSORS,
            "clock_hz": CLOCK,
            "launch_s": LAUNCH,
            "reached": REACHED,
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


def size(row: dict) -> str:
    """Return a row's dtype and shape as the title of a table."""
    return f"{row['dtype']}, " + ", ".join(f"{name} = {row[name]:,}" for name in "BTCH")


def floors_table(rows: Sequence[dict]) -> str:
    """Return a table per shape and dtype, with a line per operator, K and direction."""
    about = (
        f"Expected on an H200, not measured: {COPY / 1e12:g} TB/s copied, {FMA / 1e12:g} TFLOP/s, "
        f"{MULTIPROCESSORS} multiprocessors with {CLOCK / 1e9:g} GHz. Microseconds that the "
        "bytes, the operations, and the pipeline to L1 and shared memory take at least; expected: "
        f"the longest of them / {REACHED:g}, and {LAUNCH * 1e6:g} for each launch."
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
    return "\n".join([fill(about, 100), *blocks])


def resources_table(kernels: Sequence[dict]) -> str:
    """Return a line per kernel and K: what the kernel needs, and its block at the largest T."""
    about = (
        f"Registers of a thread on {', '.join(ARCHITECTURES)}; bytes of a thread that are spilled, "
        "and of its stack, the most of the three; bytes of static and dynamic shared memory of a "
        "block; threads of a block at the longest sentence with K taps, and warps that a "
        "multiprocessor of sm_90 then holds."
    )
    titles = f"{'registers':>12}{'spill':>6}{'stack':>6}{'static':>7}{'K':>4}{'T':>7}{'block':>6}"
    lines = ["", fill(about, 100), "", f"{'':38}{titles}{'shared':>8}{'warps':>6}"]
    for kernel in kernels:
        takes = kernel["takes"].values()
        most = {name: max(one[name] for one in takes) for name in ("spilled", "stack", "shared")}
        name = f"{kernel['kernel']:38}{' '.join(str(one['registers']) for one in takes):>12}"
        name += f"{most['spilled']:>6}{most['stack']:>6}{most['shared']:>7}"
        blocks = [(of["T"], of["K"], one) for one in kernel["launches"] for of in one["for"]]
        longest = {K: (T, one) for T, K, one in sorted(blocks, key=lambda block: block[:2])}
        for K, (T, one) in sorted(longest.items()):
            lines.append(
                f"{name:69}{K:>4}{T:>7,}{one['threads']:>6}{one['dynamic_shared']:>8,}"
                f"{one['resident_warps']:>6}"
            )
            name = ""
    return "\n".join(lines)
