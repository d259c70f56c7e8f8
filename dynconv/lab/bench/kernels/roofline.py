"""Predicts the bytes, operations and cycles of a kernel before it runs.

We assume the rates of an NVIDIA H200. They give floors, which no implementation can beat, and
expected times, which a measurement may refute.

Where the instructions of three loops go, in float32, with V = 4 channels per lane:

                          LightConv's     TaLK,           TaLK's
                          gradients,      per position    gradients,
                          per 8 rows                      per position
    arithmetic                520             24              26
    shared memory              12              6              11
    addresses                   8              2              14
    global memory, loop        20              3               6
    total                     560             35              57

LightConv's arithmetic is 512 products and an addition per row. TaLK's is six instructions per
channel: the scaled token is added to the table, and a window is a difference of two sums, with a
share of the token at each edge, which is also a difference. Its gradients also take six: four
products for the differences, the running sum, and the scaling of that sum. Two more per position
compute the complements of the shares.

TaLK's 2 addresses assume that the compiler knows the width; otherwise a position takes 39. Outside
the loop, the windows take 4 instructions per position and head, and the rows before a stretch 14
each.

We rejected a variant of TaLK that weights the rows of a window instead of subtracting two sums. It
would take 33 instructions in the loop, but the bytes take seven times as long anyway. As emulated
in float32, its rounding errors are larger: by half in windows of up to 3 tokens, by 5% in windows
of up to 31.
"""

from collections.abc import Mapping, Sequence
from math import prod
from types import MappingProxyType
from typing import Literal, NamedTuple

import torch

from dynconv.dtypes import accumulator_dtype
from dynconv.kernels.cuda import grids
from dynconv.kernels.cuda.grids import BAND, TILE
from dynconv.kernels.cuda.plan import Launch, contiguous_array
from dynconv.lab.bench.cases import Case
from dynconv.lab.bench.kernels.calls import list_launches

COPY_BYTES_PER_S = 4.3e12
"""what the GPU reads and writes"""
FLOAT32_OPERATIONS_PER_S = 60e12
"""the rate on float32; on float64 it is half"""
TENSOR_CORE_OPERATIONS_PER_S = 500e12
"""the rate of mma instructions in half precision: half the card's peak"""
MULTIPROCESSORS, CLOCK_HZ = 132, 1.98e9
"""the number of multiprocessors, and their clock"""
SCHEDULERS = 4
"""schedulers per multiprocessor; each issues one warp instruction per cycle"""
LAUNCH_S = 2.5e-6
"""the time of a launch"""
REACHED_SHARE = 0.85
"""how much of the tightest limit kernels reach"""


def minimum_bytes(case: Case) -> dict[str, int]:
    """Return the bytes of each direction: inputs and g are read once, outputs written once."""
    x, *others = (prod(size) * dtype.itemsize for size, dtype in case.inputs())
    return {"forward": 2 * x + sum(others), "backward": 3 * x + 2 * sum(others)}


def minimum_operations(case: Case) -> dict[str, int]:
    """Return the operations of each direction; a multiply-add counts as two.

    Each number of x takes K multiply-adds, including taps beyond the ends of the sentence, which
    short sentences could leave out. What happens once per weight, such as its softmax, is not
    counted, because the R channels of a head share it.
    """
    numbers = prod(case.shape[:3])
    if case.operator == "talk_conv":
        # Forward: one sum for the table, two differences and two cut tokens, and one scaling.
        # Backward: four changes and a sum, and two dot products. Neither depends on the window.
        return {"forward": 10 * numbers, "backward": 14 * numbers}
    return {"forward": 2 * case.K * numbers, "backward": 4 * case.K * numbers}


class Tiled(NamedTuple):
    """Costs of a kernel whose warps take tiles."""

    per_tap: int
    """cycles per tap"""
    per_row: int
    """cycles per row of x that a tile meets"""
    row_passes: int
    """how often the rows of a tile are loaded or stored"""
    per_weight: float
    """cycles for each weight that one position has in a tile"""
    skipped_products: int
    """products per number of a row that are left out where the row meets no tap of a position"""


TILED = {
    # A tap is read; the gradient also reads and writes a sum.
    "light_conv": Tiled(1, 0, 1, 0, 1),
    "light_conv_grad": Tiled(3, 0, 2, 0, 2),
    # Weights are staged in shared memory: 6 cycles for 32. They are read by two broadcasts of 16
    # bytes, in two phases each; so it is on Volta and Turing, and we assume it of Hopper. The
    # weights' gradient shuffles eight times and writes once. The last kernel does all of this.
    "dynamic_conv": Tiled(0, 4, 1, 1.5, 1),
    "dynamic_weight_grad": Tiled(0, 9, 1, 1.5, 0),
    "dynamic_conv_grad": Tiled(0, 13, 2, 3, 1),
    # The weights are a softmax: exponentials of logits, which are read again.
    "softmax_conv": Tiled(0, 4, 1, 5, 1),
    "softmax_logits_grad": Tiled(0, 9, 1, 7.5, 0),
    "softmax_data_grad": Tiled(0, 4, 1, 2, 1),
}

COLUMNS = {"talk_conv": 3, "talk_grad": 4}
"""multiply-adds of each number, in kernels whose loops take STEPS positions in a turn"""


class Banded(NamedTuple):
    """What a kernel on tensor cores does, whose warps walk along tiles of BAND positions."""

    computes: Literal["convolution", "weight gradient", "both gradients"]
    """a gradient of x is a convolution, too"""
    dynamic: bool
    """whether each position has a kernel of its own"""


BANDS = {
    "light_conv_band": Banded("convolution", dynamic=False),
    "light_weight_grad_band": Banded("weight gradient", dynamic=False),
    "light_grad_band": Banded("both gradients", dynamic=False),
    "dynamic_conv_band": Banded("convolution", dynamic=True),
    "dynamic_weight_grad_band": Banded("weight gradient", dynamic=True),
}


class BandWalk(NamedTuple):
    """The work of the warps of a launch on tensor cores."""

    walks: int
    tiles: int
    """tiles of all walks"""
    grid: grids.BandGrid


def count_band_tiles(case: Case, launch: Launch) -> BandWalk:
    """Count the walks and tiles of a launch on tensor cores."""
    B, T, C, H = case.shape
    x = contiguous_array((B, T, C), case.dtype)
    computes = BANDS[launch.name].computes
    of_weights = computes == "weight gradient"
    arrays = [x] if computes == "convolution" else [x, x]
    grid = grids.tensor_core_grid(H, case.K, *arrays, whole_heads=of_weights)
    columns = H if of_weights else C // (8 * grid.V)
    return BandWalk(grid.walks * columns, B * -(-T // BAND) * columns, grid)


def tensor_core_operations(case: Case, launch: Launch) -> int:
    """Return the operations of tensor cores, products with zeros included; 0 if it uses none."""
    if launch.name not in BANDS:
        return 0
    B, T, C, _ = case.shape
    gradients = 2 if BANDS[launch.name].computes == "both gradients" else 1
    return (
        gradients * B * -(-T // BAND) * C * 2 * BAND * BAND * count_band_tiles(case, launch).grid.D
    )


def count_band_cycles(case: Case, launch: Launch) -> float:
    """Return `count_cycles` of a launch on tensor cores."""
    walks, tiles, grid = count_band_tiles(case, launch)
    computes, dynamic = BANDS[launch.name]
    D = grid.D
    times = tiles if dynamic else walks  # how often a band or its sums cross shared memory
    rows = BAND * -(-case.K // 32)  # of up to 32 weights; in memory on two lines every other time
    if computes == "weight gradient":
        pieces = (1 + D) * BAND * (case.shape.C // case.shape.H) // (4 * grid.V)  # of 4 V channels
        return tiles * pieces + times * (8 * D + rows * (2.5 if dynamic else 1))
    if dynamic and launch.template[3]:  # whether the kernels are reversed
        rows = BAND * D // 2  # two columns at a time
    band = rows * (2.5 if dynamic else 2) + 4 * D  # written, and each block read in four phases
    # A row of x, up to 128 bytes, is a line; of the output 64 bytes are written at a time.
    tile, around = 3 * BAND, (D - 1) * BAND
    if computes == "both gradients":
        tile += 2 * BAND + 2 * D * grid.V  # 64 bytes of a row of x at a time; words transposed
        around += 8 * D + rows  # its sums
    return tiles * tile + walks * around + times * band


def extra_bytes(case: Case, launched: Sequence[Launch]) -> int:
    """Return the bytes beyond the minimum: on tensor cores DynamicConv reads g a second time."""
    return case.x_bytes if sum(launch.name in BANDS for launch in launched) > 1 else 0


def count_cycles(case: Case, launch: Launch) -> float:
    """Return the cycles that L1 and shared memory spend on a launch, summed over its warps.

    A cycle moves 128 bytes for a warp. The row of a warp's 32 V channels takes c cycles.
    """
    (B, T, C, _), K, dtype = case.shape, case.K, case.dtype
    if launch.name in ("sum_rows", "talk_reach"):
        return 0  # what they read is small compared with x
    if launch.name in BANDS:
        return count_band_cycles(case, launch)
    V = launch.template[1]
    c = -(-32 * V * dtype.itemsize // 128)
    if case.operator == "talk_conv":
        words = V * accumulator_dtype(dtype).itemsize // 4
        # Forward writes a row into the table and reads four. Backward reads and writes four
        # differences, and reads and clears one; its rows are g and dx, and g and x at the two
        # edges; and it reads a window twice, for dx and for the offsets.
        per_row = {"talk_conv": 5 * words + c, "talk_grad": 10 * words + 4 * c + 2}[launch.name]
        return B * -(-C // (32 * V)) * (T + around_stretches(case)) * per_row
    tiles, taps, rows, columns, h = count_tiles(case, launch)
    costs = TILED[launch.name]
    per_tile = costs.row_passes * TILE * c + costs.per_weight * h * K
    return columns * (costs.per_tap * taps + (c + costs.per_row) * rows + per_tile * tiles)


def around_stretches(case: Case) -> int:
    """Count the positions of a sentence that TaLK's stretches load besides their own."""
    (_, T, C, H), reach = case.shape, case.K // 2
    x = contiguous_array(case.shape[:3], case.dtype)
    stretch = grids.ColumnGrid(C // H, H, reach, reach, x).stretch
    return sum(reach + min(reach, begin) for begin in range(0, T, stretch))


class Walk(NamedTuple):
    """The work of the warps of a launch per sentence and group of channels."""

    tiles: int
    taps: int
    """taps of all tiles that meet a token"""
    rows: int
    """rows of x that they meet"""
    columns: int
    """pairs of a sentence and a group of channels, which one warp processes"""
    heads: int
    """heads of a warp"""


def count_tiles(case: Case, launch: Launch) -> Walk:
    """Count the tiles and taps of a launch of a kernel whose warps take tiles."""
    (B, T, C, H), K, V = case.shape, case.K, launch.template[1]
    R, reach = C // H, K // 2
    G = grids.lanes_per_head(R, V)
    h = 32 // G
    begin = reach if launch.name == "dynamic_conv_grad" else 0  # its tiles begin before x
    tiles = [t for t in range(-begin, T, TILE) if t > -TILE]
    taps = sum(min(K, T + reach - t) - max(0, reach - t - (TILE - 1)) for t in tiles)
    rows = taps + (TILE - 1) * len(tiles)
    return Walk(len(tiles), taps, rows, B * -(-H // h) * -(-R // (G * V)), h)


class Instructions(NamedTuple):
    """The instructions of a compiled kernel."""

    loop: int
    """instructions of the loop for TILE rows of x, which meet as many taps; in TaLK for a position;
    on tensor cores, for a tile or for 8 V of its channels"""
    around: int = 0
    """instructions around that loop, on tensor cores"""


def issued_instructions(
    case: Case, launch: Launch, instructions: Mapping[str, Instructions]
) -> float:
    """Return the instructions of the loop over rows, summed over warps; 0 where none are known.

    The first and last rows of a tile take as many instructions, except the products that they leave
    out. For TaLK the loop over positions is counted; on tensor cores the loop over tiles, and what
    comes before and after it.
    """
    if launch.kernel not in instructions:
        return 0
    loop, around = instructions[launch.kernel]
    if launch.name in COLUMNS:
        B, T, C, _ = case.shape
        positions = T + (around_stretches(case) if launch.name == "talk_grad" else 0)
        return B * -(-C // (32 * launch.template[1])) * positions * loop
    if launch.name in BANDS:
        walks, tiles, grid = count_band_tiles(case, launch)
        if BANDS[launch.name].computes == "weight gradient":
            # The loop is over 8 V channels, and around it is at most all the rest.
            return tiles * (loop * case.shape.C // case.shape.H // (8 * grid.V) + around)
        return tiles * loop + walks * around
    _, taps, rows, columns, _ = count_tiles(case, launch)
    left_out = TILED[launch.name].skipped_products * TILE * launch.template[1]
    return columns * (rows * loop / TILE - (rows - taps) * left_out)


def predict_case(
    case: Case, instructions: Mapping[str, Instructions] = MappingProxyType({})
) -> dict:
    """Return for each direction what it needs, and the times that follow.

    These are bytes, operations and cycles; the microseconds that each takes at least (`us`); the
    floor of the first two; the number of launches; and the expected time. If the kernels'
    instructions are given, `us` also contains the time to issue them.
    """
    rate = FLOAT32_OPERATIONS_PER_S / (2 if case.dtype == torch.float64 else 1)
    rows = {}
    for direction, launched in list_launches(case).items():
        total = sum(count_cycles(case, launch) for launch in launched)
        counts = minimum_bytes(case)[direction], minimum_operations(case)[direction], total
        done = sum(tensor_core_operations(case, launch) for launch in launched)
        moved = counts[0] + extra_bytes(case, launched)
        seconds = (
            moved / COPY_BYTES_PER_S,
            done / TENSOR_CORE_OPERATIONS_PER_S or counts[1] / rate,
            total / (MULTIPROCESSORS * CLOCK_HZ),
        )
        us = [one * 1e6 for one in seconds]
        limits = dict(zip(("bytes", "operations", "shared"), us, strict=True))
        if issue := sum(issued_instructions(case, launch, instructions) for launch in launched):
            limits["issue"] = issue / (MULTIPROCESSORS * SCHEDULERS * CLOCK_HZ) * 1e6
        rows[direction] = dict(zip(("bytes", "operations", "cycles"), counts, strict=True)) | {
            "us": limits,
            "floor_us": max(counts[0] / COPY_BYTES_PER_S * 1e6, us[1]),
            "launches": len(launched),  # without PyTorch's own that draws DropConnect's seed
            "expected_us": max(limits.values()) / REACHED_SHARE + len(launched) * LAUNCH_S * 1e6,
        }
    return rows
