"""What is known of a kernel before it runs: bytes, operations, cycles, registers.

The rates are those of an NVIDIA H200, assumed and not measured; what follows from them are floors,
which no version runs below, and expectations, which a measurement may refute.
"""

import json
from collections.abc import Iterator, Sequence
from datetime import date
from itertools import product
from math import prod
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import torch

from dynconv.bench import machine
from dynconv.bench.cases import Shape
from dynconv.bench.table import digits
from dynconv.errors import UserError
from dynconv.files import replace_text
from dynconv.kernels import cuda, launch, nvrtc

COPY = 4.3e12  # bytes a second, read and written
FMA = {torch.float64: 30e12}  # operations a second; 60e12 where sums are float32
MULTIPROCESSORS, CLOCK = 132, 1.98e9
LAUNCH = 2.5e-6  # seconds
REACHED = 0.85  # of the nearest limit
REGISTERS, SHARED, THREADS, BLOCKS = 65536, 227 * 1024, 2048, 32  # of a multiprocessor of sm_90
ARCHITECTURES = "sm_75", "sm_80", "sm_90"
DIRECTIONS = "forward", "backward"
LIMITS = "bytes", "operations", "shared"  # what a kernel may be bound by


class Case(NamedTuple):
    """One operator at one size."""

    operator: str
    K: int
    dtype: torch.dtype
    shape: Shape

    def named(self) -> dict:
        """Its entries in a row of the file."""
        names = {"operator": self.operator, "K": self.K, "dtype": str(self.dtype)[6:]}
        return names | self.shape._asdict()

    def sizes(self) -> list[tuple[int, ...]]:
        """Of the inputs beside x."""
        (B, T, _, H), K = self.shape, self.K
        offsets = [(B, T, H)] * 2
        return {"light_conv": [(H, K)], "talk_conv": offsets}.get(self.operator, [(B, T, H, K)])

    def dtypes(self) -> list[torch.dtype]:
        """Of the same; offsets have those of the sums, since half precision cannot place an edge."""
        if self.operator == "talk_conv":
            return [cuda.accumulator(self.dtype)] * 2
        return [self.dtype]


def forward(kernels, case: Case, inputs: Sequence, seed=None, dropout: float = 0.0):
    """Call the kernels, of torch.ops.dynconv or of dynconv.kernels.cuda; returns the output."""
    if case.operator == "talk_conv":
        return kernels.talk(*inputs, case.K // 2, case.K // 2)
    if case.operator == "dynamic_conv_softmax":
        return kernels.softmax_mix(*inputs, seed, dropout, case.K // 2)
    return kernels.mix(*inputs, case.K // 2)


def backward(kernels, case: Case, g, inputs: Sequence, seed=None, dropout: float = 0.0):
    """The same for the gradients of all inputs."""
    if case.operator == "talk_conv":
        return kernels.talk_backward(g, *inputs, case.K // 2, case.K // 2)
    if case.operator == "dynamic_conv_softmax":
        return kernels.softmax_mix_backward(g, *inputs, seed, dropout, case.K // 2)
    return kernels.gradients(g, *inputs, case.K // 2)


def moved(case: Case) -> dict[str, int]:
    """Bytes: each input is read once, each output written once. Backward reads g, too."""
    x = prod(case.shape[:3]) * case.dtype.itemsize
    sizes = zip(case.sizes(), case.dtypes(), strict=True)
    others = sum(prod(size) * dtype.itemsize for size, dtype in sizes)
    return {"forward": 2 * x + others, "backward": 3 * x + 2 * others}


def operations(case: Case) -> dict[str, int]:
    """A multiply-add is two. What is done once a weight, as its softmax is, is too little to count:
    the R channels of a head share it.
    """
    numbers = prod(case.shape[:3])
    if case.operator == "talk_conv":
        # One sum into the table, two differences and two cut tokens out of it, one scaling; for
        # the gradients four changes and a sum, and two dot products: whatever the window's width.
        return {"forward": 10 * numbers, "backward": 14 * numbers}
    return {"forward": 2 * case.K * numbers, "backward": 4 * case.K * numbers}


def cycles(case: Case) -> dict[str, float]:
    """Of the pipeline to L1 and shared memory, which takes 128 bytes of a warp in one, summed over
    all warps. A warp asks for c lines of 128 bytes with each row of its 32 V channels.
    """
    (B, T, C, H), K, dtype = case.shape, case.K, case.dtype
    R, x = C // H, torch.empty(B, T, C, dtype=dtype, device="meta")
    if case.operator == "talk_conv":
        V, _, _, stretch = cuda.columns(R, K // 2, K // 2, x)
        c, words = lines(V, dtype), V * cuda.accumulator(dtype).itemsize // 4
        # A stretch also walks the tokens around it. A row of x goes into the table, and four come
        # out of it; of the changes four are read and written and one taken out, and the offsets'
        # products read g and x at both edges.
        rows = B * T * -(-C // (32 * V)) * (stretch + 2 * (K // 2)) / stretch
        return {"forward": (5 * words + c) * rows, "backward": (9 * words + 4 * c + 5) * rows}
    V = cuda.vector(R, 4, x)
    G = cuda.lanes(R, V)
    c, h = lines(V, dtype), 32 // G
    tiles = B * -(-T // cuda.TILE) * -(-H // h) * -(-R // (G * V))
    window, rows = (K + cuda.TILE - 1) * c, cuda.TILE * c  # rows that K taps meet; those of a tile
    if case.operator == "light_conv":
        # A tap is one read. Backward stores dx and loads x, and adds to a column of sums.
        return {
            "forward": tiles * (window + K + rows),
            "backward": tiles * (window + 2 * rows + 3 * K),
        }
    # A tap's weights are two reads of 16 bytes, its two heads in two phases each; on their way into
    # shared memory 32 of them take 6 cycles. dweight takes eight shuffles and a write a tap.
    staging = 1.5 * h * K
    out = dx = window + rows + 4 * K + staging
    dweight = window + rows + 9 * K + staging
    if case.operator == "dynamic_conv_softmax":  # exponentials, and logits that are read again
        out, dx, dweight = out + 3.5 * h * K, dx + 0.5 * h * K, dweight + 6 * h * K
    return {"forward": tiles * out, "backward": tiles * (dx + dweight)}


def lines(V: int, dtype: torch.dtype) -> int:
    """Of 128 bytes, in a row of a warp's 32 V channels."""
    return -(-32 * V * dtype.itemsize // 128)


class Started(NamedTuple):
    """A kernel that an operator launches."""

    source: str
    kernel: str
    how: launch.Launch


def started(case: Case) -> dict[str, list[Started]]:
    """What each direction launches: told by the code that launches it, on tensors without memory."""

    def empty(size: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        return torch.empty(size, dtype=dtype, device="meta")

    x = empty(case.shape[:3], case.dtype)
    inputs = [x, *map(empty, case.sizes(), case.dtypes())]
    found: dict[str, list[Started]] = {direction: [] for direction in DIRECTIONS}
    for direction, run in zip(DIRECTIONS, (forward, backward), strict=True):

        def record(source, kernel, how, *rest, into=found[direction]) -> None:
            into.append(Started(source, kernel, how))

        with mock.patch.object(cuda, "launch", record):
            run(cuda, case, inputs) if run is forward else run(cuda, case, x, inputs)
    return found


def known(case: Case) -> dict[str, dict]:
    """Of each direction: bytes, operations and cycles, the microseconds that each takes at least
    (`us`), the floor, and what is expected.
    """
    counts = moved(case), operations(case), cycles(case)
    rates = COPY, FMA.get(case.dtype, 60e12), MULTIPROCESSORS * CLOCK
    launched, rows = started(case), {}
    for direction in DIRECTIONS:
        count = [of[direction] for of in counts]
        us = [amount / rate * 1e6 for amount, rate in zip(count, rates, strict=True)]
        # PyTorch draws DropConnect's seed.
        drawn = case.operator == "dynamic_conv_softmax" and direction == "forward"
        launches = len(launched[direction]) + drawn
        rows[direction] = dict(zip(("bytes", "operations", "cycles"), count, strict=True)) | {
            "us": dict(zip(LIMITS, us, strict=True)),
            "floor_us": max(us[:2]),
            "launches": launches,
            "expected_us": max(us) / REACHED + launches * LAUNCH * 1e6,
        }
    return rows


def resident(used: nvrtc.Resources, threads: int, dynamic: int) -> int:
    """Warps that a multiprocessor of sm_90 holds at a time."""
    warps = threads // 32
    of_a_warp = -(-used.registers * 32 // 256) * 256  # registers come in units of 256
    shared = used.shared + dynamic
    blocks = [REGISTERS // (of_a_warp * warps), THREADS // threads, BLOCKS]
    return warps * min(blocks + ([SHARED // shared] if shared else []))


def resources(cases: Sequence[Case]) -> list[dict]:
    """Every kernel that the cases launch: what it takes on each architecture, and for every launch
    of another size threads, shared memory, resident warps, and the K and T that it is for.
    """
    launches: dict[tuple[str, str], dict[launch.Launch, list[Case]]] = {}
    for case in cases:
        for one in (one for ones in started(case).values() for one in ones):
            sizes = launches.setdefault((one.source, one.kernel), {})
            sizes.setdefault(one.how._replace(blocks=0), []).append(case)
    found = {}
    for source in sorted({source for source, _ in launches}):
        names = sorted(kernel for of, kernel in launches if of == source)
        for architecture in ARCHITECTURES:
            compiled = nvrtc.resources(launch.code(source), names, architecture).kernels
            found |= {(source, name, architecture): compiled[name] for name in names}
    kernels = []
    for (source, kernel), sizes in launches.items():
        used = {name: found[source, kernel, name] for name in ARCHITECTURES}
        blocks = [
            {
                "threads": prod(how.block),
                "dynamic_shared": how.shared,
                "resident_warps": resident(used["sm_90"], prod(how.block), how.shared),
                "for": sorted({(case.K, case.shape.T) for case in of}),
            }
            for how, of in sizes.items()
        ]
        on = {name: one._asdict() for name, one in used.items()}
        kernels.append({"source": source, "kernel": kernel, "on": on, "launches": blocks})
    return kernels


def plan(cases: Sequence[Case], command: str, output: Path | None) -> Iterator[str]:
    """Work everything out, without a GPU, and write it to `output`; yields what to print."""
    if reason := nvrtc.missing():
        raise UserError(f"kernels cannot be compiled: {reason}")
    output = machine.results("kernels-plan", output)
    rows = [(case, direction, of) for case in cases for direction, of in known(case).items()]
    kernels = resources(cases)
    assumed = {"copy_bytes_per_s": COPY, "float32_operations_per_s": FMA.get(None, 60e12)}
    assumed |= {"multiprocessors": MULTIPROCESSORS, "clock_hz": CLOCK, "launch_s": LAUNCH}
    report = {
        "what": "expected, not measured: floors of the CUDA kernels on an H200, and what they take",
        "command": command,
        "date": date.today().isoformat(),
        "versions": machine.versions() | {"nvrtc": nvrtc.version()},
        "assumed": assumed | {"reached": REACHED},
        "rows": [case.named() | {"direction": which} | of for case, which, of in rows],
        "kernels": kernels,
    }
    replace_text(output, json.dumps(report, indent=1) + "\n")
    yield floors_table(rows)
    yield resources_table(kernels)
    yield f"\nwritten to {output}"


def floors_table(rows: Sequence[tuple[Case, str, dict]]) -> str:
    """A block for each shape and dtype."""
    text = [
        f"Expected on an H200, not measured: {COPY / 1e12:g} TB/s copied, 60 TFLOP/s, "
        f"{MULTIPROCESSORS} multiprocessors at {CLOCK / 1e9:g} GHz",
        "us: what bytes, operations and the pipeline to L1 and shared memory take at least",
        f"expected: the longest of the three / {REACHED}, and {LAUNCH * 1e6:g} us a launch",
    ]
    titles = "MB", "GFLOP", *(f"us {name[:6]}" for name in LIMITS), "launches", "expected"
    for (shape, dtype), block in groups(rows).items():
        text += ["", f"{sizes(shape)}, {str(dtype)[6:]}", f"{'':34}" + columns(titles)]
        for case, direction, of in block:
            numbers = of["bytes"] / 1e6, of["operations"] / 1e9, *of["us"].values()
            name = f"{case.operator} {case.K:<3}{direction}"
            name = f"{case.operator:21}{case.K:>3} {direction:9}"
            text.append(
                name
                + "".join(digits(number, 9) for number in numbers)
                + f"{of['launches']:>9}"
                + digits(of["expected_us"], 9)
            )
    return "\n".join(text)
