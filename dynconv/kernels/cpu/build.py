"""Compiles the C kernels at first use, and loads them.

The compiler is $CC, cc, gcc or clang, whichever exists first. It builds one library per dtype, for
this machine's processor, without the headers of Python or PyTorch. The library links to the OpenMP
that PyTorch has loaded and shares its threads. If the compiler cannot use that OpenMP, the kernels
run on one thread.
"""

import ctypes
import os
import shlex
import warnings
from functools import cache
from pathlib import Path

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from dynconv.dtypes import dtype_name
from dynconv.kernels.compiler import command_in, find_installed, load_cached, run_compiler
from dynconv.kernels.constant import cached_constant

SOURCES = Path(__file__).parent
"""the folder of the C sources"""
PYTORCH = Path(torch.__file__).resolve().parent
"""the folder of PyTorch, which holds the OpenMP of its wheels"""
SOURCE_FILES = ("conv.c", "conv_grad_weight.c", "talk.c", "average.c", "step.c")
"""the sources that are linked into one library"""
DEFINES = {torch.float32: "-DREAL=float", torch.float64: "-DREAL=double", torch.bfloat16: "-DBF16"}
"""macros that select the type REAL of a library, keyed by dtype"""
FLAGS: tuple[list[str], ...] = (["-march=native", "-fopenmp"], ["-march=native"], ["-fopenmp"], [])
"""compiler flags from the fastest to the safest; the first that build a working library are used"""
POINTER, SIZE, INT = ctypes.c_void_p, ctypes.c_long, ctypes.c_int
SIGNATURES = {
    "conv": [INT, *[POINTER] * 3, *[SIZE] * 10, INT],
    "conv_grad_weight": [*[POINTER] * 3, *[SIZE] * 10, INT],
    "conv_grad_weight_shared": [*[POINTER] * 3, *[SIZE] * 10, INT],
    "talk_conv": [*[POINTER] * 4, *[SIZE] * 8, INT],
    "talk_conv_backward": [*[POINTER] * 7, *[SIZE] * 10, INT],
    "cumulative_mean": [INT, *[POINTER] * 2, *[SIZE] * 5, INT],
    "conv_step": [*[POINTER] * 4, *[SIZE] * 8, INT],
    "threaded": [],
}
"""the types of each function's arguments; the last int is the number of threads"""


class NoCKernelsError(RuntimeError):
    """Reports why the C kernels cannot run here, and what to install."""


@cached_constant
def why_unavailable(dtype: torch.dtype = torch.float32) -> str | None:
    """Return why this dtype's C kernels cannot run on this machine's CPU, or None if they can."""
    try:
        load_library(dtype)
    except NoCKernelsError as reason:
        return str(reason)
    return None


def supports(x: Tensor) -> bool:
    """Return whether C kernels can run on x, on its device, in its dtype, on this machine."""
    return x.device.type == "cpu" and x.dtype in DEFINES and why_unavailable(x.dtype) is None


def why_unsupported(x: Tensor) -> str:
    """Return why C kernels cannot run on x, and the remedy."""
    if x.device.type != "cpu":
        return f"x is on {x.device}, the C kernels run on the CPU: choose another impl"
    if x.dtype not in DEFINES:
        names = ", ".join(dtype_name(dtype) for dtype in DEFINES)
        return f"x is {x.dtype}, the C kernels take {names}: cast it, or choose another impl"
    return str(why_unavailable(x.dtype))


def is_trusted_on(x: Tensor) -> bool:
    """Return True: a library is used only if its mean was right when it was built."""
    return True


@cache
def load_library(dtype: torch.dtype) -> ctypes.CDLL:
    """Load the kernels for this dtype, compiling them if needed.

    Raises NoCKernelsError if that fails.
    """
    compiler = require_compiler()
    if note := describe_substitution(compiler):
        warnings.warn(note, stacklevel=1)
    sources = ((SOURCES / name).read_text("utf-8") for name in ("vector.h", *SOURCE_FILES))
    try:
        return load_cached(
            dtype_name(dtype),
            [*sources, *compiler, str(FLAGS), DEFINES[dtype], *openmp_arguments()],
            lambda path: build(compiler, dtype, path),
            lambda reason: NoCKernelsError(f"no C kernels in {reason}"),
            load,
        )
    except OSError as error:
        remedy = "set XDG_CACHE_HOME to another directory"
        raise NoCKernelsError(f"no C kernels: {error}; {remedy}") from error


def load(path: Path) -> ctypes.CDLL:
    """Load a library, and declare the types of its functions."""
    loaded = ctypes.CDLL(str(path))
    for function, arguments in SIGNATURES.items():
        getattr(loaded, function).argtypes = arguments
        getattr(loaded, function).restype = None
    loaded.threaded.restype = INT
    return loaded


def require_compiler() -> list[str]:
    """Return the C compiler's path and the arguments in `CC`.

    Raises NoCKernelsError if there is none.
    """
    commands = [command for command in (command_in("CC"), ["cc"], ["gcc"], ["clang"]) if command]
    if found := find_installed(commands):
        return found[0]
    tried = ", ".join(name for name, *_ in commands)
    raise NoCKernelsError(
        f"no C compiler ({tried}): install one, for instance with "
        "'apt install gcc' or 'conda install gcc', for impl='cpu'"
    )


def describe_substitution(compiler: list[str]) -> str | None:
    """Return a note that `compiler` is used instead of `CC`, or None if `CC` exists or is unset."""
    command = command_in("CC")
    if not command or find_installed([command]):
        return None
    return f"CC={os.environ['CC']} is not there, so {shlex.join(compiler)} compiles the C kernels"


def build(compiler: list[str], dtype: torch.dtype, path: Path) -> None:
    """Compile all sources into one library at `path`, with the first FLAGS that work.

    Flags work if the library can be loaded and computes a mean correctly.
    """
    objects = [str(path.with_name(f"{name}.o")) for name in SOURCE_FILES]
    for flags in FLAGS:
        compile_ = [*compiler, "-O3", "-std=gnu11", "-fPIC", *flags, DEFINES[dtype]]
        errors: list[str] = []
        for name, out in zip(SOURCE_FILES, objects, strict=True):
            errors = errors or run_compiler([*compile_, "-c", str(SOURCES / name), "-o", out])
        threads = openmp_arguments() if "-fopenmp" in flags else []
        # One name per attempt: loading a name twice would return the first library.
        linked = path.with_name(f"{''.join(flags)}.so")
        errors = errors or run_compiler(
            [*compiler, "-shared", *objects, *threads, "-lm", "-o", str(linked)]
        )
        if not (errors := errors or find_fault(linked, dtype)):
            os.replace(linked, path)
            return
    raise NoCKernelsError(f"{shlex.join(compiler)} cannot build the C kernels: {errors[0]}")


def find_fault(path: Path, dtype: torch.dtype) -> list[str]:
    """Compute a mean with a library; return what is wrong, in lines, [] if it is right."""
    with _disable_current_modes():  # fake tensors, which an estimate works with, hold no numbers
        x = torch.arange(64, dtype=dtype).repeat_interleave(256)  # (1, 64, 256)
        y = torch.empty_like(x)
        try:
            load(path).cumulative_mean(0, x.data_ptr(), y.data_ptr(), 1, 64, 256, x.numel(), 256, 2)
        except (OSError, AttributeError) as error:  # it cannot be loaded, or lacks a function
            return str(error).splitlines()
        return [] if torch.allclose(y, x / 2, rtol=0.01) else ["what it builds gives wrong answers"]


def openmp_arguments() -> list[str]:
    """Return what links OpenMP: PyTorch's library, to share its threads, or the compiler's flag."""
    try:
        maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ["-fopenmp"]
    names = ("libgomp", "libiomp5", "libomp")
    loaded = {Path(line.split()[-1]) for line in maps.splitlines() if "/" in line}
    found = [path for path in loaded if path.name.startswith(names)]
    # NumPy, for instance, may have loaded another one.
    found.sort(key=lambda path: (not path.is_relative_to(PYTORCH), path))
    return [str(path) for path in found[:1]] or ["-fopenmp"]
