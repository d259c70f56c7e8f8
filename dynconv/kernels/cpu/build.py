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
    compiler = find_compiler()
    key = hashlib.sha256()
    sources = (SOURCES / name for name in ("vector.h", *NAMES))
    for part in (*sources, compiler, processor(), str(FLAGS), DEFINES[dtype]):
        key.update(part.read_bytes() if isinstance(part, Path) else part.encode())
    name = f"{key.hexdigest()[:16]}-{str(dtype).removeprefix('torch.')}.so"
    path = cache_directory() / name
    try:
        if not path.exists():
            build(compiler, DEFINES[dtype], path)
        loaded = ctypes.CDLL(str(path))
    except OSError as error:  # no room, no permission, not a library
        raise NoKernels(f"no C kernels in {path}: {error.strerror or error}") from error
    for function, arguments in SIGNATURES.items():
        getattr(loaded, function).argtypes = arguments
        getattr(loaded, function).restype = None
    return loaded


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
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        for flags in FLAGS:
            objects = [f"{folder}/{name}.o" for name in NAMES]
            compile_ = [compiler, "-O3", "-std=gnu11", "-fPIC", *flags, define]
            failed = None
            for name, out in zip(NAMES, objects, strict=True):
                failed = failed or run([*compile_, "-c", str(SOURCES / name), "-o", out])
            threads = openmp() if "-fopenmp" in flags else []
            out = f"{folder}/{path.name}"
            failed = failed or run([compiler, "-shared", *objects, *threads, "-lm", "-o", out])
            if failed is None:
                os.replace(out, path)  # at once: another process may be doing the same
                return
    raise NoKernels(f"{compiler} cannot build the C kernels: {failed}")


def run(command: list[str]) -> str | None:
    """Run a command; return None, or the first line of its error."""
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError as error:
        return str(error)
    return None if done.returncode == 0 else (done.stderr.strip() or "no message").splitlines()[0]


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
