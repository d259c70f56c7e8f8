"""Records which bytes a CUDA kernel reads and writes while the simulator runs it.

The kernel is compiled without optimization, so the trace contains every access in the source, even
loads that a compiler would merge. For the same reason results may round differently.
"""

import ctypes
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from dynconv.kernels.cuda import build
from dynconv.kernels.cuda.call import Kernels, Values
from dynconv.kernels.cuda.plan import Launch
from dynconv.lab.simulate.simulator import CHECKS, Module, require_toolchain

HEADER = Path(__file__).with_name("trace.h")
GCC = "-fsanitize=thread -fsanitize-coverage=trace-pc -fno-omit-frame-pointer -O0"
# Clang leaves out what follows from the rest: branches, and the read of y[i] += 1.
CLANG = GCC.replace("trace-pc", "trace-pc,no-prune") + (
    " -mllvm -tsan-instrument-read-before-write=1"
)
SECTOR = 32
"""bytes that memory transfers at least"""
WARP = 32
"""threads of a warp"""
WORD = 4
"""bytes that a bank of shared memory delivers per cycle"""
BANKS = 32
SECTORS_PER_CYCLE = 4
"""sectors that L1 delivers per cycle"""
NEVER = 2**62
SHARED, STATIC, BARRIER, BACK = -1, -2, -3, -4
"""markers that replace the number of an array"""

RAW = np.dtype(  # what trace.h calls Access
    [("site", "u8"), ("place", "u8"), ("offset", "i8")]
    + [(field, "i4") for field in ("block", "thread", "array", "bytes", "write")],
    align=True,
)
ACCESS = np.dtype(
    [(field, "i4") for field in ("block", "thread", "array")]
    + [("index", "i8"), ("offset", "i8"), ("bytes", "i4"), ("write", "?")]
    + [(field, "i4") for field in ("site", "nth", "step", "phase")]
)


def trace(
    code: str,
    name: str,
    grid: tuple[int, ...],
    block: tuple[int, ...],
    args: Sequence[np.ndarray | torch.Tensor | np.generic],
    shared_mem: int = 0,
    limit: int = 4_000_000,
) -> np.ndarray:
    """Run kernel `name` of the CUDA source `code` on the simulator; return its memory accesses.

    grid, block, shared_mem  as for a launch of `simulate.Module`
    args                     contiguous arrays and CPU tensors for pointers, which the kernel may
                             write to; NumPy scalars for the rest
    limit                    maximum records (accesses and jumps back) of 48 bytes; else KernelFault

    Returns one record per access in the order of execution: block by block, each thread until it
    waits. The fields of a record:

    block   number of the block: x + gridDim.x * (y + gridDim.y * z)
    thread  number in the block: x + blockDim.x * (y + blockDim.y * z)
    array   position in `args` of the array that contains the bytes; -1 for shared memory
    index   first element accessed in that array; in shared memory its 4-byte word, whose bank is
            index % 32
    offset  the same in bytes
    bytes   number of bytes accessed
    write   True for a write; an atomic function is recorded as a read and a write
    site    number of the instruction, in order of first use
    nth     how often the block has executed this instruction before
    step    number of the instruction in the sequence that the block executes
    phase   how many __syncthreads() the thread has passed

    Accesses of a warp with the same site and nth belong to one instruction. Threads run in lockstep
    as on a GPU: those that skip a branch, or an iteration of a loop, wait for the others.

    Within a statement the order is the compiler's. Local variables are not recorded, nor is memory
    that is not among `args`. Static __shared__ arrays are recorded only on Linux; their offsets
    follow the dynamic shared memory.
    """
    arrays = {i: array_extent(i, a) for i, a in enumerate(args) if not isinstance(a, np.generic)}
    values = [np.uint64(arrays[i][0]) if i in arrays else a for i, a in enumerate(args)]
    flags = GCC if require_toolchain()[2] == CHECKS[0].split() else CLANG
    source = f'#line 1 "trace.h"\n{HEADER.read_text("utf-8")}\n#line 1 "kernel.cu"\n{code}'
    entry = f"simulated::trace::Traced<{name}>::run"
    module = Module(source, [entry], flags=flags.split())
    kernel = module.get_function(entry)
    kernel.name = name
    trace_into = module.library.trace_into
    trace_into.argtypes = ctypes.c_void_p, ctypes.c_long, ctypes.c_void_p, ctypes.c_long
    trace_into.restype = ctypes.c_long

    ranges = np.array([arrays[i][:2] for i in arrays], np.uint64)
    raw = np.empty(limit, RAW)
    trace_into(ranges.ctypes.data, len(ranges), raw.ctypes.data, limit)
    try:
        kernel(grid, block, values, shared_mem=shared_mem, workers=1)
    finally:
        length = trace_into(None, 0, None, 0)
    return decode_accesses(raw[:length], arrays, shared_mem)


def array_extent(i: int, array: np.ndarray | torch.Tensor) -> tuple[int, int, int]:
    """Return the address, bytes, and bytes per element of argument i.

    Raises ValueError if the array is strided.
    """
    if isinstance(array, torch.Tensor):
        if array.device.type != "cpu":
            raise ValueError(f"args[{i}] is on {array.device}, the trace runs on the CPU: .cpu()")
        if not array.is_contiguous():
            raise ValueError(f"args[{i}] is not contiguous: pass args[{i}].contiguous()")
        return array.data_ptr(), array.nbytes, array.itemsize
    if not isinstance(array, np.ndarray):
        raise TypeError(f"args[{i}] is {type(array)}: pass an array, a tensor, np.int32 or such")
    if not array.flags.c_contiguous:
        raise ValueError(f"args[{i}] is not contiguous: pass np.ascontiguousarray(...)")
    return array.ctypes.data, array.nbytes, array.itemsize


def decode_accesses(
    raw: np.ndarray, arrays: dict[int, tuple[int, int, int]], shared_mem: int
) -> np.ndarray:
    """Return the records of `trace`.

    raw     the records of trace.h
    arrays  the `array_extent` of each array, by its position in `args`
    """
    step, phase = in_lockstep(raw)
    real = raw["bytes"] > 0
    raw, step, phase = raw[real], step[real], phase[real]
    out = np.empty(len(raw), ACCESS)
    for field in ("block", "thread", "offset", "bytes", "write"):
        out[field] = raw[field]
    out["phase"], out["step"] = phase, np.unique(step, return_inverse=True)[1]

    static = raw["array"] == STATIC
    first = raw["offset"][static].min(initial=2**62)
    out["offset"][static] += -(-shared_mem // 16) * 16 - first
    positions = np.array([*arrays, SHARED, SHARED])  # STATIC and SHARED count from the end
    sizes = np.array([*(size for _, _, size in arrays.values()), WORD, WORD])
    out["array"] = positions[raw["array"]]
    out["index"] = out["offset"] // sizes[raw["array"]]

    both = raw["place"] * np.uint64(31) + raw["site"]
    _, used, site = np.unique(both, return_index=True, return_inverse=True)
    out["site"] = used.argsort().argsort()[site]
    order, start = group_equal(out["block"], out["site"], then=out["step"])
    new = np.diff(out["step"][order], prepend=-1) != 0
    visits = np.cumsum(new)
    out["nth"][order] = visits - visits[start]
    return out


def in_lockstep(raw: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the step and the phase of each record, with the threads of a block in lockstep.

    At each step, the threads whose next record is earliest in the source advance together. A jump
    back to the start of a loop waits until all others have got there, so threads that skip code
    wait for those that execute it. Where several loops end at one place, the inner one jumps first.
    """
    order, start = group_equal(raw["block"], raw["thread"])
    passed = np.cumsum(raw["array"][order] == BARRIER)
    before = passed[start] - (raw["array"][order][start] == BARRIER)
    phase, step = np.empty((2, len(raw)), np.int64)
    phase[order] = passed - before
    start_of_code = raw["place"].min(initial=2**63)
    place, site = ((raw[field] - start_of_code).astype(np.int64) for field in ("place", "site"))
    place = (place << 32) + np.where(raw["array"] == BACK, 2**32 - 1 - site, 0)
    place = np.unique(place, return_inverse=True)[1]
    key = np.append(place[order], NEVER)
    at = np.flatnonzero(start == np.arange(len(raw)))  # each thread's next record, in this order
    end = np.append(at[1:], len(raw))
    threads = raw["block"][order][at]
    blocks = np.flatnonzero(np.diff(threads, prepend=-1))
    sizes = np.diff(blocks, append=len(at))
    for now in count():
        places = key[np.where(at < end, at, -1)]
        least = np.repeat(np.minimum.reduceat(places, blocks), sizes)
        go = (places == least) & (places < NEVER)
        if not go.any():
            return step, phase
        step[order[at[go]]] = now
        at[go] += 1


def combine_keys(*keys: np.ndarray) -> np.ndarray:
    """Combine non-negative integer keys into one that sorts like the tuple."""
    return np.ravel_multi_index(keys, [int(key.max(initial=0)) + 1 for key in keys])


def group_equal(*keys: np.ndarray, then: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Return the order that groups equal keys, and for each place the start of its group.

    then  sorts within a group; None: keep the order
    """
    key = combine_keys(*keys)
    order = np.argsort(key, kind="stable") if then is None else np.lexsort((then, key))
    new = np.diff(key[order], prepend=-1) != 0
    return order, np.maximum.accumulate(np.where(new, np.arange(len(key)), 0))


def trace_launches(run: Callable[[Kernels], object]) -> list[tuple[str, np.ndarray]]:
    """Return the name and the trace of each kernel that `run(kernels)` launches.

    For instance run=lambda kernels: kernels.conv(x, weight, pad_left), with CPU tensors.
    """
    traces = []

    def start(launch: Launch, values: Values, tensors: list[torch.Tensor]) -> None:
        at = {z.data_ptr(): z for z in tensors if z.numel()}
        args = [at.get(z, np.uint64(z)) if isinstance(z, int) else z for z in values]
        how = (launch.blocks,), launch.block, args, launch.shared
        traces.append(
            (launch.kernel, trace(build.inline_headers(launch.source), launch.kernel, *how))
        )

    run(Kernels(start))
    return traces


class Traffic(NamedTuple):
    """The memory traffic of a kernel on one array.

    loaded    bytes that threads read
    stored    bytes that threads write
    touched   distinct bytes among them
    requests  warp instructions that access the array
    sectors   32-byte sectors, summed over requests; 0 for shared memory, which has banks instead
    """

    loaded: int
    stored: int
    touched: int
    requests: int
    sectors: int


def traffic(accesses: np.ndarray) -> dict[int, Traffic]:
    """Return the traffic of each array in a trace, or in some of its records.

    Arrays are assumed to start at a sector.
    """
    arrays = np.unique(accesses["array"]).tolist()
    return {array: array_traffic(accesses[accesses["array"] == array]) for array in arrays}


def array_traffic(a: np.ndarray) -> Traffic:
    """Return the traffic of accesses to one array."""
    key = combine_keys(a["block"], a["thread"] // WARP, a["site"], a["nth"])
    requests, request = np.unique(key, return_inverse=True)
    begin, end = a["offset"], a["offset"] + a["bytes"]
    touched = np.zeros(end.max(), bool)
    for k in range(a["bytes"].max()):
        touched[(begin + k)[begin + k < end]] = True
    first, last = begin // SECTOR, (end - 1) // SECTOR
    request = request * (last.max() + 1)  # so that no two requests share a sector
    spans = range((last - first).max() + 1)
    sectors = np.sort(np.concatenate([(request + first + k)[first + k <= last] for k in spans]))
    different = 1 + np.count_nonzero(np.diff(sectors))  # np.unique takes ten times as long
    return Traffic(
        loaded=int(a["bytes"][~a["write"]].sum()),
        stored=int(a["bytes"][a["write"]].sum()),
        touched=int(touched.sum()),
        requests=len(requests),
        sectors=0 if a["array"][0] == SHARED else int(different),
    )


def request_cycles(accesses: np.ndarray) -> np.ndarray:
    """Return for how many cycles each request occupies L1 and shared memory at least, in order.

    L1 delivers 128 bytes per cycle, which are four sectors. Each of shared memory's 32 banks
    delivers one word per cycle, to all threads that want it; word i is in bank i % 32. An access
    must lie in one sector, or be of one word.
    """
    a = accesses
    key = combine_keys(a["block"], a["thread"] // WARP, a["site"], a["nth"])
    request = np.unique(key, return_inverse=True)[1]
    shared = a["array"] == SHARED
    bank = np.where(shared, a["index"] % BANKS, BANKS)
    piece = np.where(shared, a["index"], a["offset"] // SECTOR)
    pieces = piece.max(initial=0) + 1
    different = np.unique((request * (BANKS + 1) + bank) * pieces + piece) // pieces
    line, count = np.unique(different, return_counts=True)
    cycles = np.zeros(request.max(initial=-1) + 1)
    each = np.where(line % (BANKS + 1) < BANKS, count, np.maximum(count / SECTORS_PER_CYCLE, 1))
    np.maximum.at(cycles, line // (BANKS + 1), each)
    return cycles
