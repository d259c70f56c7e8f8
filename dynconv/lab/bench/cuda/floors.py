"""What is known of a kernel before it runs: bytes, operations, cycles.

The rates are those of an NVIDIA H200, assumed and not measured; what follows from them are floors,
which no version runs below, and expectations, which a measurement may refute.
"""

from collections.abc import Sequence
from math import prod
from typing import NamedTuple
from unittest import mock

import torch

from dynconv.kernels import cuda, launch
from dynconv.lab.bench.cases import SEEDED, Case

COPY = 4.3e12  # bytes a second, read and written
FMA = 60e12  # operations a second on float32; half as many on float64
MULTIPROCESSORS, CLOCK = 132, 1.98e9
LAUNCH = 2.5e-6  # seconds
REACHED = 0.85  # of the nearest limit


def forward(kernels, case: Case, inputs: Sequence, seed=None, dropout: float = 0.0):
    """Call the kernels, of torch.ops.dynconv or of dynconv.kernels.cuda; returns the output."""
    if case.operator == "talk_conv":
        return kernels.talk(*inputs, case.K // 2, case.K // 2)
    if case.operator == SEEDED:
        return kernels.softmax_mix(*inputs, seed, dropout, case.K // 2)
    return kernels.mix(*inputs, case.K // 2)


def backward(kernels, case: Case, g, inputs: Sequence, seed=None, dropout: float = 0.0):
    """The same for the gradients of all inputs."""
    if case.operator == "talk_conv":
        return kernels.talk_backward(g, *inputs, case.K // 2, case.K // 2)
    if case.operator == SEEDED:
        return kernels.softmax_mix_backward(g, *inputs, seed, dropout, case.K // 2)
    return kernels.gradients(g, *inputs, case.K // 2)


def moved(case: Case) -> dict[str, int]:
    """Return the bytes of each direction: inputs and g are read once, outputs written once."""
    x, *others = (prod(size) * dtype.itemsize for size, dtype in case.inputs())
    return {"forward": 2 * x + sum(others), "backward": 3 * x + 2 * sum(others)}


def operations(case: Case) -> dict[str, int]:
    """A multiply-add is two, K of them a number: also those of taps beyond an end of the sentence,
    which short ones can leave out. What is done once a weight, as its softmax is, is not counted:
    the R channels of a head share it.
    """
    numbers = prod(case.shape[:3])
    if case.operator == "talk_conv":
        # One sum into the table, two differences and two cut tokens out of it, one scaling; for
        # the gradients four changes and a sum, and two dot products: whatever the window's width.
        return {"forward": 10 * numbers, "backward": 14 * numbers}
    return {"forward": 2 * case.K * numbers, "backward": 4 * case.K * numbers}


# Of kernels whose warps take tiles of 8 positions: cycles a tap, how often a tile's rows are loaded
# or stored, and cycles for each of a tile's weights of one position.
TILED = {
    "light_conv": (1, 1, 0),  # a tap is read
    "light_conv_grad": (3, 2, 0),  # and a sum read and written
    "dynamic_conv": (4, 1, 1.5),  # two reads of 16 bytes in two phases; staging: 6 for 32 weights
    "dynamic_weight_grad": (9, 1, 1.5),  # eight shuffles and a write
    "dynamic_conv_grad": (13, 2, 3),  # both
    "softmax_conv": (4, 1, 5),  # exponentials, and logits that are read again
    "softmax_logits_grad": (9, 1, 7.5),
    "softmax_data_grad": (4, 1, 2),
}


def cycles(case: Case, kernel: str) -> float:
    """Of the pipeline to L1 and shared memory, which moves 128 bytes for a warp in one, summed over
    all warps of a kernel. A warp asks for c times 128 bytes with a row of its 32 V channels.
    """
    (B, T, C, H), K, dtype = case.shape, case.K, case.dtype
    R, x, name = C // H, torch.empty(B, T, C, dtype=dtype, device="meta"), kernel.split("<")[0]
    reach = K // 2
    if name in ("sum_rows", "talk_reach"):
        return 0  # they read what is small beside x
    if case.operator == "talk_conv":
        V, _, _, stretch = cuda.columns(R, reach, reach, x)
        c, words = lines(V, dtype), V * cuda.accumulator(dtype).itemsize // 4
        # A row of x goes into the table, and four come out of it. Backward reads four differences,
        # writes them, and takes one out; g and dx, and g and x at the two edges, are its rows.
        of_a_row = {"talk_conv": 5 * words + c, "talk_grad": 9 * words + 4 * c + 5}[name]
        around = sum(reach + min(reach, begin) for begin in range(0, T, stretch))
        return B * -(-C // (32 * V)) * (T + around) * of_a_row
    V = cuda.vector(R, 4, x)
    G = cuda.lanes(R, V)
    c, h = lines(V, dtype), 32 // G
    begin = reach if name == "dynamic_conv_grad" else 0  # its tiles begin before x
    tiles = [t for t in range(-begin, T, cuda.TILE) if t > -cuda.TILE]
    # Taps that meet no token are left out: at the end one by one, at the beginning by tiles.
    taps = sum(
        min(K, T + reach - t) - max(0, reach - t - cuda.TILE + 1) // cuda.TILE * cuda.TILE
        for t in tiles
    )
    a_tap, times, a_weight = TILED[name]
    window = c * (taps + (cuda.TILE - 1) * len(tiles))
    of_a_tile = times * cuda.TILE * c + a_weight * h * K
    return B * -(-H // h) * -(-R // (G * V)) * (window + a_tap * taps + of_a_tile * len(tiles))


def lines(V: int, dtype: torch.dtype) -> int:
    """Of 128 bytes, in a row of 32 V channels."""
    return -(-32 * V * dtype.itemsize // 128)


class Started(NamedTuple):
    """A kernel that an operator launches."""

    source: str
    kernel: str
    how: launch.Launch


def started(case: Case) -> dict[str, list[Started]]:
    """What each direction launches, by the code that does it, on tensors without memory."""
    inputs = [torch.empty(size, dtype=dtype, device="meta") for size, dtype in case.inputs()]
    found: dict[str, list[Started]] = {}
    for direction, run, g in ("forward", forward, []), ("backward", backward, inputs[:1]):
        every: list[Started] = []
        with mock.patch.object(cuda, "launch", lambda *one, to=every: to.append(Started(*one[:3]))):
            run(cuda, case, *g, inputs)
        found[direction] = every
    return found


def known(case: Case) -> dict[str, dict]:
    """Of each direction: bytes, operations and cycles, the microseconds that each takes at least
    (`us`), the floor, and what is expected.
    """
    fma = FMA / 2 if case.dtype == torch.float64 else FMA
    rates, rows = (COPY, fma, MULTIPROCESSORS * CLOCK), {}
    for direction, kernels in started(case).items():
        passed = sum(cycles(case, one.kernel) for one in kernels)
        counts = moved(case)[direction], operations(case)[direction], passed
        us = [count / rate * 1e6 for count, rate in zip(counts, rates, strict=True)]
        launches = len(kernels)  # without that in which PyTorch draws DropConnect's seed
        rows[direction] = dict(zip(("bytes", "operations", "cycles"), counts, strict=True)) | {
            "us": dict(zip(("bytes", "operations", "shared"), us, strict=True)),
            "floor_us": max(us[:2]),
            "launches": launches,
            "expected_us": max(us) / REACHED + launches * LAUNCH * 1e6,
        }
    return rows
