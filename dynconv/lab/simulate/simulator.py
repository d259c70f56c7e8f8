"""Compiles CUDA C++ kernels for the CPU and runs them, with checks.

`Module` puts simulate.h in front of a kernel's source and calls the C++ compiler in `CXX`, else
c++, g++ or clang++. A launch checks what is undefined behaviour on a GPU: wrong arguments, array
bounds, dynamic shared memory, barriers and shuffles that some threads do not reach. It cannot check
memory behind pointer arguments, nor end an infinite loop.
"""

import ctypes
import difflib
import os
import re
import shlex
from collections.abc import Sequence
from functools import cache
from itertools import product
from math import prod
from operator import index
from pathlib import Path

import numpy as np
import torch

from dynconv.kernels.compiler import command_in, find_installed, load_cached, run_compiler

HEADER = Path(__file__).with_name("simulate.h")
# NaN must stay NaN: no -ffast-math. Kernels see memory as floats here, as uint4 there. Without
# hidden visibility, libraries would share the __shared__ arrays of templates of the same name.
COMPILE = "-std=c++20 -O2 -fPIC -pthread -fvisibility=hidden -fno-strict-aliasing -U_FORTIFY_SOURCE"
# The first that works: for this processor with fast thread-local storage (x86), for it, for any.
PROCESSOR = ("-march=native -mtls-dialect=gnu2", "-march=native", "")
# Report an index outside an array, and a stack frame of more than half a fiber's stack: GCC, Clang.
CHECKS = (
    "-fsanitize=bounds-strict -Werror=frame-larger-than=131072",
    "-fsanitize=array-bounds -Wframe-larger-than=131072 -Werror=frame-larger-than",
)
PROBE = "__global__ void probe(int* x) { __syncthreads(); x[threadIdx.x] = threadIdx.x + 1; }"
MAX_SHARED = 232448
"""bytes per block of compute capability 9.0"""
MAX_BLOCKS = (2**31 - 1, 65535, 65535)
MAX_THREADS = (1024, 1024, 64)
ORDERS = {"forward": -1, "backward": -2}
KINDS = {"p": "a pointer", "i": "an integer", "f": "a floating-point number", "o": "a structure"}
FITS = {"p": "iu", "i": "iub", "f": "f", "o": "iufcV"}
"""NumPy's kinds of arrays that fit each kind of parameter"""


class KernelFault(RuntimeError):
    """Reports a launch with wrong arguments, or a check that a kernel fails while it runs."""


class CompileError(RuntimeError):
    """Reports the compiler's first error, with line numbers of the kernel's source."""


class NoSimulatorError(RuntimeError):
    """Reports why kernels cannot be simulated here, and what to install."""


@cache
def why_unavailable() -> str | None:
    """Return why kernels cannot be simulated on this machine, or None if they can."""
    try:
        require_toolchain()
    except NoSimulatorError as reason:
        return str(reason)
    return None


class Module:
    """Compiles CUDA source for this CPU, as cupy.RawModule does for a GPU.

    code      kernels and device functions; the macro SIMULATED is defined. Dynamic shared memory is
              declared by DYNAMIC_SHARED(type, name), a pointer that checks each access.
    names     name expressions, such as "light_conv<float, 4>", of the kernels to compile
    flags     additional compiler flags
    """

    def __init__(self, code: str, names: Sequence[str], *, flags: Sequence[str] = ()):
        compiler, processor, checks = require_toolchain()
        self.names = tuple(names)
        options = [*processor, *checks, *COMPILE.split(), *flags]
        self.library = load(code, self.names, compiler, options)

    def get_function(self, name: str) -> "Function":
        """Return the kernel of this name, which must be one of `names`."""
        if name not in self.names:
            near = difflib.get_close_matches(name, self.names, 1) or self.names
            raise ValueError(f"the module was not compiled with {name!r}, but with {near[0]!r}")
        return Function(self.library, self.names.index(name), name)


class Function:
    """Launches a kernel of a Module."""

    def __init__(self, library: ctypes.CDLL, number: int, name: str):
        self.name = name
        self.run = getattr(library, f"launch_{number}")
        text = ctypes.create_string_buffer(4096)
        getattr(library, f"describe_{number}")(text, ctypes.c_size_t(4096))
        self.parameters = [(part[0], int(part[1:])) for part in text.value.decode().split()]

    def __call__(
        self,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        args: Sequence[np.generic],
        shared_mem: int = 0,
        order: str | int = "forward",
        workers: int | None = None,
    ) -> None:
        """Run the kernel to its end; KernelFault if the kernel or the launch is wrong.

        grid         blocks along x, y and z; one to three numbers
        block        threads along x, y and z
        args         NumPy scalars; np.uint64 for a pointer
        shared_mem   bytes of dynamic shared memory, filled with NaN before each block
        order        in which order the threads of a block run: "forward", "backward", or the seed
                     of a shuffle. A missing barrier gives different answers in different orders.
        workers      CPU threads that run blocks in parallel; default: as many as PyTorch's
        """
        grid = launch_extent("grid", grid, MAX_BLOCKS)
        block = launch_extent("block", block, MAX_THREADS)
        if prod(block) > 1024:
            raise KernelFault(f"a block of {prod(block)} threads: it may have 1024 at most")
        if not 0 <= shared_mem <= MAX_SHARED:
            raise KernelFault(f"shared_mem={shared_mem}: 0 to {MAX_SHARED} bytes per block")
        seed = ORDERS[order] if order in ORDERS else order
        if seed is order and (isinstance(order, str) or order < 0):
            raise ValueError(f"order={order!r}: 'forward', 'backward', or a seed from 0 on")
        launch = LaunchStruct(
            grid=grid,
            block=block,
            shared=shared_mem,
            workers=min(workers or torch.get_num_threads(), prod(grid)),
            order=seed,
            arguments=self.pack(args),
            error=ctypes.addressof(error := ctypes.create_string_buffer(1024)),
        )
        self.run(ctypes.byref(launch))
        if launch.failed:
            raise KernelFault(f"{self.name}, {error.value.decode(errors='replace')}")

    def pack(self, args: Sequence[np.generic]) -> bytes:
        """Return the arguments, 16 bytes each, after checking them against the kernel's."""
        count = len(self.parameters)
        if len(args) != count:
            raise KernelFault(f"{self.name} takes {count} arguments, not {len(args)}")
        for i, (value, (kind, size)) in enumerate(zip(args, self.parameters, strict=True)):
            if not isinstance(value, np.generic):
                raise TypeError(f"args[{i}] is {type(value)}: pass np.int32, np.float32 or such")
            if value.nbytes != size or value.dtype.kind not in FITS[kind]:
                raise KernelFault(
                    f"{self.name}, args[{i}] is {value.dtype} ({value.nbytes} bytes), but "
                    f"the kernel takes {KINDS[kind]} of {size} bytes"
                )
        return b"".join(value.tobytes().ljust(16, b"\0") for value in args)


class LaunchStruct(ctypes.Structure):
    """Mirrors the struct Launch of simulate.h."""

    _fields_ = [
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint),
        ("workers", ctypes.c_uint),
        ("order", ctypes.c_int64),
        ("arguments", ctypes.c_char_p),
        ("error", ctypes.c_void_p),
        ("next", ctypes.c_uint64),
        ("failed", ctypes.c_uint),
    ]


def launch_extent(
    what: str, sizes: tuple[int, ...], limits: tuple[int, ...]
) -> tuple[int, int, int]:
    """Return the three sizes of a grid or block; KernelFault if one is out of range."""
    sizes = tuple(map(index, sizes))
    fits = all(1 <= n <= limit for n, limit in zip(sizes, limits, strict=False))
    if not (1 <= len(sizes) <= 3 and fits):
        raise KernelFault(f"{what}={sizes}: one to three sizes, from 1 to {limits}")
    x, y, z = (*sizes, 1, 1)[:3]
    return x, y, z


@cache
def require_toolchain() -> tuple[list[str], list[str], list[str]]:
    """Return a working compiler, and the flags for processor and checks that it accepts."""
    if os.name != "posix":
        raise NoSimulatorError("kernels are simulated only on Linux and macOS; on Windows use WSL")
    named = command_in("CXX")
    commands = [named] if named else [["c++"], ["g++"], ["clang++"]]
    reason = f"no C++ compiler ({', '.join(map(shlex.join, commands))})"
    for compiler in find_installed(commands):
        for processor, checks in product(PROCESSOR, CHECKS):
            tools = compiler, processor.split(), checks.split()
            try:
                options = [*tools[1], *tools[2], *COMPILE.split()]
                library = load(PROBE, ("probe",), compiler, options)
            except CompileError as error:
                reason = f"{shlex.join(compiler)} cannot build them: {error}"
                continue
            out = np.zeros(2, np.int32)
            Function(library, 0, "probe")((1,), (2,), [np.uint64(out.ctypes.data)])
            if out.tolist() == [1, 2]:
                return tools
            reason = f"what {shlex.join(compiler)} builds gives wrong answers"
    raise NoSimulatorError(
        f"CUDA kernels cannot be simulated, {reason}: install a C++ compiler, for instance with "
        "'apt install g++' or 'conda install gxx'"
    )


def load(code: str, names: tuple[str, ...], compiler: list[str], options: list[str]) -> ctypes.CDLL:
    """Load the library with these kernels, compiling it if the cache has none."""
    source = "\n".join(
        ['#line 1 "simulate.h"', HEADER.read_text(encoding="utf-8"), '#line 1 "kernel.cu"', code]
    )
    source += '\n#line 1 "names"'
    for i, name in enumerate(names):
        source += f"""
static constexpr auto kernel_{i} = &{name};
extern "C" [[gnu::visibility("default")]] void launch_{i}(simulated::Launch* launch) {{
    simulated::launch<kernel_{i}>(launch, kernel_{i}); }}
extern "C" [[gnu::visibility("default")]] void describe_{i}(char* text, size_t room) {{
    simulated::describe(text, room, kernel_{i}); }}"""
    parts = source, *compiler, *options
    try:  # a function that is only declared is an error here
        return load_cached(
            "cuda",
            parts,
            lambda path: build(source, compiler, options, path),
            CompileError,
            lambda path: ctypes.CDLL(str(path)),
        )
    except OSError as error:
        raise CompileError(str(error)) from None


def build(source: str, compiler: list[str], options: list[str], path: Path) -> None:
    """Compile and link in two steps: in one, the compiler would link its own array checks."""
    text = path.with_name("kernel.cpp")
    compiled = str(path.with_name("kernel.o"))
    text.write_text(source, encoding="utf-8")
    compile_or_raise([*compiler, *options, "-c", str(text), "-o", compiled])
    compile_or_raise([*compiler, "-shared", "-pthread", compiled, "-lm", "-o", str(path)])


def compile_or_raise(command: list[str]) -> None:
    """Run the compiler. Raises CompileError with the first error that it reports."""
    if lines := [line.strip() for line in run_compiler(command)]:
        first = next((line for line in lines if "error:" in line), lines[0])
        if first.startswith("simulate.h:"):  # its cause is a line of the kernel
            cause = (line for line in lines if re.match(r"(?!simulate\.h)\S+:\d+", line))
            first += f" ({next(cause, 'no line of the kernel is named')})"
        raise CompileError(first)
