"""Compiles the C kernels when they are first needed, and loads them.

There is one library per dtype, compiled for this machine's processor by the compiler that `CC`
names, else by cc, gcc or clang, and kept in the user's cache directory. It needs neither Python's
nor PyTorch's headers, and uses the threads of the OpenMP that PyTorch has loaded.
"""

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from dynconv.kernels.constant import constant

SOURCES = Path(__file__).parent
NAMES = ("conv.c", "conv_grad_weight.c", "talk.c", "average.c", "step.c")
DEFINES = {torch.float32: "-DREAL=float", torch.float64: "-DREAL=double", torch.bfloat16: "-DBF16"}
FLAGS = (["-march=native", "-fopenmp"], ["-march=native"], ["-fopenmp"], [])  # the first that works
P, N, I = ctypes.c_void_p, ctypes.c_long, ctypes.c_int  # noqa: E741
SIGNATURES = {
    "conv": [I, P, P, P, *[N] * 10, I],
    "conv_grad_weight": [P, P, P, *[N] * 10, I],
    "conv_grad_weight_shared": [P, P, P, *[N] * 10, I],
    "talk": [P, P, P, P, *[N] * 8, I],
    "talk_backward": [P, P, P, P, P, P, P, *[N] * 10, I],
    "cumulative_mean": [I, P, P, *[N] * 5, I],
    "step": [P, P, P, P, *[N] * 8, I],
}


class NoKernels(RuntimeError):
    """The C kernels cannot run here; the message says why and what to install."""


@constant
def missing() -> str | None:
    """Return why the C kernels cannot run on this machine's CPU, or None if they can."""
    try:
        library(torch.float32)
    except NoKernels as reason:
        return str(reason)
    return None


def runs(x: Tensor) -> bool:
    """Return whether there is a C kernel for x: on the CPU, one of three dtypes, a compiler."""
    return x.device.type == "cpu" and x.dtype in DEFINES and missing() is None


def obstacle(x: Tensor) -> str:
    """Return why there is none for x, and the remedy."""
    if x.device.type != "cpu":
        return f"x is on {x.device}, the C kernels run on the CPU: choose another impl"
    if x.dtype not in DEFINES:
        names = ", ".join(str(dtype).removeprefix("torch.") for dtype in DEFINES)
        return f"x is {x.dtype}, the C kernels take {names}: cast it, or choose another impl"
    return missing() or "nothing stands in the way"


@cache
def library(dtype: torch.dtype) -> ctypes.CDLL:
    """Load the kernels for this dtype, compiling them if needed; NoKernels if that fails."""
    compiler, define = find_compiler(), DEFINES[dtype]
    sources = ((SOURCES / name).read_text("utf-8") for name in ("vector.h", *NAMES))
    loaded = cached_library(
        str(dtype).removeprefix("torch."),
        [*sources, compiler, str(FLAGS), define],
        lambda path: build(compiler, define, path),
        lambda reason: NoKernels(f"no C kernels in {reason}"),
    )
    for function, arguments in SIGNATURES.items():
        getattr(loaded, function).argtypes = arguments
        getattr(loaded, function).restype = None
    return loaded


def cached_library(
    name: str, parts: Sequence[str], make: Callable[[Path], None], error: Callable[[str], Exception]
) -> ctypes.CDLL:
    """Load the shared library that is made of `parts` from the cache; make(path) makes it first.

    parts  sources, compiler and flags
    error  the exception to raise, from "PATH: why", where there is no room, no permission, or the
           file is no library
    """
    key = hashlib.sha256("\0".join([*parts, processor()]).encode()).hexdigest()[:16]
    path = cache_directory() / f"{key}-{name}.so"
    try:
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=path.parent) as folder:
                make(Path(folder) / path.name)
                # In one step, because another process may be doing the same.
                os.replace(Path(folder) / path.name, path)
        return ctypes.CDLL(str(path))
    except OSError as reason:
        raise error(f"{path}: {reason.strerror or reason}") from reason


def find_compiler() -> str:
    """Return the path of a C compiler; NoKernels if there is none."""
    names = [os.environ["CC"]] if os.environ.get("CC") else ["cc", "gcc", "clang"]
    for name in names:
        if path := shutil.which(name):
            return path
    raise NoKernels(
        f"no C compiler ({', '.join(names)}): install one, for instance with "
        "'apt install gcc' or 'conda install gcc', for impl='native'"
    )


def build(compiler: str, define: str, path: Path) -> None:
    """Compile all sources into one library at `path`, with the first flags that work."""
    objects = [str(path.with_name(f"{name}.o")) for name in NAMES]
    for flags in FLAGS:
        compile_ = [compiler, "-O3", "-std=gnu11", "-fPIC", *flags, define]
        errors = []
        for name, out in zip(NAMES, objects, strict=True):
            errors = errors or run([*compile_, "-c", str(SOURCES / name), "-o", out])
        threads = openmp() if "-fopenmp" in flags else []
        link = [compiler, "-shared", *objects, *threads, "-lm", "-o", str(path)]
        if not (errors := errors or run(link)):
            return
    raise NoKernels(f"{compiler} cannot build the C kernels: {errors[0]}")


def run(command: list[str]) -> list[str]:
    """Run a compiler; return the lines of its error message, none if it succeeds."""
    english = {**os.environ, "LC_ALL": "C"}
    try:
        process = subprocess.run(command, capture_output=True, text=True, env=english)
    except OSError as error:
        return [str(error)]
    return (process.stderr.strip() or "no message").splitlines() if process.returncode else []


def openmp() -> list[str]:
    """Return what to link with: the OpenMP that PyTorch has loaded, to share its threads."""
    try:
        maps = Path("/proc/self/maps").read_text()
    except OSError:
        return ["-fopenmp"]
    names = ("libgomp", "libiomp5", "libomp")
    loaded = {line.split()[-1] for line in maps.splitlines() if "/" in line}
    return [path for path in loaded if Path(path).name.startswith(names)][:1] or ["-fopenmp"]


def processor() -> str:
    """Return the processor's model and features, on which -march=native depends."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() + platform.machine()
    return "".join(sorted({line for line in lines if line.startswith(("model name", "flags"))}))


def cache_directory() -> Path:
    """Return where the libraries are kept: $XDG_CACHE_HOME/dynconv, or ~/.cache/dynconv."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dynconv"
