"""Compiles the C kernels when they are first needed, and loads them.

There is one library per dtype, compiled for this machine's processor by the compiler that `CC`
names, else by cc, gcc or clang, and kept in the user's cache directory. It needs neither Python's
nor PyTorch's headers, and uses the threads of the OpenMP that PyTorch has loaded; where compiler
and OpenMP do not fit together, it runs on one thread.
"""

import ctypes
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
import warnings
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from dynconv.kernels.constant import constant

SOURCES = Path(__file__).parent
NAMES = ("conv.c", "conv_grad_weight.c", "talk.c", "average.c", "step.c")
DEFINES = {torch.float32: "-DREAL=float", torch.float64: "-DREAL=double", torch.bfloat16: "-DBF16"}
FLAGS: tuple[list[str], ...] = (["-march=native", "-fopenmp"], ["-march=native"], ["-fopenmp"], [])
"""flags in order of preference: the first that give a working library are used"""
P, N, I = ctypes.c_void_p, ctypes.c_long, ctypes.c_int  # noqa: E741
SIGNATURES = {
    "conv": [I, P, P, P, *[N] * 10, I],
    "conv_grad_weight": [P, P, P, *[N] * 10, I],
    "conv_grad_weight_shared": [P, P, P, *[N] * 10, I],
    "talk": [P, P, P, P, *[N] * 8, I],
    "talk_backward": [P, P, P, P, P, P, P, *[N] * 10, I],
    "cumulative_mean": [I, P, P, *[N] * 5, I],
    "step": [P, P, P, P, *[N] * 8, I],
    "threaded": [],
}


class NoKernels(RuntimeError):
    """Reports why the C kernels cannot run here, and what to install."""


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
    """Return why no C kernel runs for x, and the remedy."""
    if x.device.type != "cpu":
        return f"x is on {x.device}, the C kernels run on the CPU: choose another impl"
    if x.dtype not in DEFINES:
        names = ", ".join(str(dtype).removeprefix("torch.") for dtype in DEFINES)
        return f"x is {x.dtype}, the C kernels take {names}: cast it, or choose another impl"
    return missing() or "nothing prevents it"


@cache
def library(dtype: torch.dtype) -> ctypes.CDLL:
    """Load the kernels for this dtype, compiling them if needed; NoKernels if that fails."""
    compiler = find_compiler()
    if note := substitution(compiler):
        warnings.warn(note, stacklevel=1)
    sources = ((SOURCES / name).read_text("utf-8") for name in ("vector.h", *NAMES))
    path = cached_library(
        str(dtype).removeprefix("torch."),
        [*sources, *compiler, str(FLAGS), DEFINES[dtype]],
        lambda path: build(compiler, dtype, path),
        lambda reason: NoKernels(f"no C kernels in {reason}"),
    )
    try:
        return load(path)
    except OSError as error:  # for instance on a disk mounted noexec
        raise NoKernels(f"no C kernels: {error}") from error


def load(path: Path) -> ctypes.CDLL:
    """Load a library of the kernels, and declare the types of its functions."""
    loaded = ctypes.CDLL(str(path))
    for function, arguments in SIGNATURES.items():
        getattr(loaded, function).argtypes = arguments
        getattr(loaded, function).restype = None
    loaded.threaded.restype = I
    return loaded


def cached_library(
    name: str, parts: Sequence[str], make: Callable[[Path], None], error: Callable[[str], Exception]
) -> Path:
    """Return the path of the library compiled from `parts`, by make(path) if it is not cached.

    The file's name ends in a checksum of its content. A damaged file is compiled again, because
    loading it could crash the process.

    parts  sources, compiler and flags
    error  the exception to raise, from "PATH: why", where there is no room or no permission
    """
    key = hashlib.sha256("\0".join([*parts, processor()]).encode()).hexdigest()[:16]
    path = Path(f"{key}-{name}.so")
    try:
        path = cache_directory() / path
        path.parent.mkdir(parents=True, exist_ok=True)
        for cached in path.parent.glob(f"{path.stem}-*.so"):
            if cached == with_checksum(path, cached):
                return cached
            cached.unlink()
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            new = Path(folder) / path.name
            make(new)
            cached = with_checksum(path, new)
            os.replace(new, cached)  # atomic: another process may be doing the same
        return cached
    except OSError as reason:
        raise error(f"{path}: {reason.strerror or reason}") from reason


def with_checksum(path: Path, file: Path) -> Path:
    """Return `path` with the checksum of a file's content at the end of its name."""
    digest = hashlib.sha256(file.read_bytes()).hexdigest()[:16]
    return path.with_name(f"{path.stem}-{digest}.so")


def find_compiler() -> list[str]:
    """Return the C compiler's path, and the arguments that `CC` gives it; NoKernels without one."""
    commands = [words for words in (compiler_in_cc(), ["cc"], ["gcc"], ["clang"]) if words]
    for name, *arguments in commands:
        if path := shutil.which(name):
            return [path, *arguments]
    tried = ", ".join(name for name, *_ in commands)
    raise NoKernels(
        f"no C compiler ({tried}): install one, for instance with "
        "'apt install gcc' or 'conda install gcc', for impl='native'"
    )


def compiler_in_cc() -> list[str]:
    """Return the command in `CC`, such as "ccache gcc", as a list; it may be empty."""
    command = os.environ.get("CC", "")
    try:
        return shlex.split(command)
    except ValueError:  # unclosed quotes
        return [command]


def substitution(compiler: list[str]) -> str | None:
    """Return a note that `compiler` replaces the one in `CC`, or None if that one exists."""
    command = compiler_in_cc()
    if not command or shutil.which(command[0]):
        return None
    return f"CC={os.environ['CC']} is not there, so {shlex.join(compiler)} compiles the C kernels"


def build(compiler: list[str], dtype: torch.dtype, path: Path) -> None:
    """Compile all sources into one library at `path`, with the first flags that work.

    Flags work when the library can be loaded and computes the right mean.
    """
    objects = [str(path.with_name(f"{name}.o")) for name in NAMES]
    for flags in FLAGS:
        compile_ = [*compiler, "-O3", "-std=gnu11", "-fPIC", *flags, DEFINES[dtype]]
        errors: list[str] = []
        for name, out in zip(NAMES, objects, strict=True):
            errors = errors or run([*compile_, "-c", str(SOURCES / name), "-o", out])
        threads = openmp() if "-fopenmp" in flags else []
        # a name per attempt: loading a name again would return the library loaded first
        linked = path.with_name(f"{''.join(flags)}.so")
        errors = errors or run([*compiler, "-shared", *objects, *threads, "-lm", "-o", str(linked)])
        if not (errors := errors or find_fault(linked, dtype)):
            os.replace(linked, path)
            return
    raise NoKernels(f"{shlex.join(compiler)} cannot build the C kernels: {errors[0]}")


def find_fault(path: Path, dtype: torch.dtype) -> list[str]:
    """Load a library, compute with it, and return what is wrong: an empty list if it is right."""
    x = torch.arange(64, dtype=dtype).repeat_interleave(256)  # (1, 64, 256)
    y = torch.empty_like(x)
    try:
        load(path).cumulative_mean(0, x.data_ptr(), y.data_ptr(), 1, 64, 256, x.numel(), 256, 2)
    except (OSError, AttributeError) as error:  # it cannot be loaded, or lacks a function
        return str(error).splitlines()
    return [] if torch.allclose(y, x / 2, rtol=0.01) else ["what it builds gives wrong answers"]


def run(command: list[str]) -> list[str]:
    """Run a compiler, and return the lines of its error message: none if it succeeds."""
    english = {**os.environ, "LC_ALL": "C"}
    try:
        process = subprocess.run(
            command, capture_output=True, encoding="utf-8", errors="replace", env=english
        )
    except OSError as error:
        return [str(error)]
    return (process.stderr.strip() or "no message").splitlines() if process.returncode else []


def openmp() -> list[str]:
    """Return the OpenMP library to link: the one that PyTorch has loaded, to share its threads."""
    try:
        maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ["-fopenmp"]
    names = ("libgomp", "libiomp5", "libomp")
    loaded = {line.split()[-1] for line in maps.splitlines() if "/" in line}
    return [path for path in loaded if Path(path).name.startswith(names)][:1] or ["-fopenmp"]


def processor() -> str:
    """Return the processor's model and features, on which -march=native depends."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() + platform.machine()
    return "".join(sorted({line for line in lines if line.startswith(("model name", "flags"))}))


def cache_directory() -> Path:
    """Return where the libraries are kept: $XDG_CACHE_HOME/dynconv, or ~/.cache/dynconv."""
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dynconv"
    except RuntimeError:
        raise OSError("this user has no home directory: set HOME or XDG_CACHE_HOME") from None
