"""Compiles the CUDA kernels with CuPy, and tells where they can run.

CuPy is imported only here, when a kernel is first used. It compiles each kernel for the current GPU
with NVRTC in about a second and caches it in ~/.cupy/kernel_cache. Its flag -ftz=true flushes
subnormal float32 values, those below 1e-38, to 0.
"""

import hashlib
import json
import re
import warnings
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor

from dynconv.dtypes import dtype_name
from dynconv.errors import UserError
from dynconv.kernels.constant import cached_constant
from dynconv.kernels.cuda.plan import CUDA_TYPES, SOURCES, compute_capability
from dynconv.paths import data_places


class NoGpuKernelsError(RuntimeError):
    """Reports why the CUDA kernels cannot run, and what to do."""


@cached_constant
def why_unavailable() -> str | None:
    """Return why the CUDA kernels cannot run on this machine, or None if they can."""
    if find_spec("cupy") is None:
        return "no CuPy: pip install 'dynconv[gpu]'"
    with warnings.catch_warnings(record=True) as caught:  # PyTorch warns about what is wrong
        warnings.simplefilter("always")
        available = torch.cuda.is_available()
    if not available:
        hint = f" ({str(caught[0].message).splitlines()[0]})" if caught else ""
        return f"PyTorch sees no GPU{hint}: see nvidia-smi, and install a CUDA build of torch"
    try:
        cupy().cuda.runtime.getDeviceCount()
        cupy().cuda.nvrtc.getVersion()
    except Exception as error:  # from CuPy's libraries or the driver
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        return f"CuPy does not start ({first}): pip install 'dynconv[gpu]', for a driver of CUDA 13"
    return None


def cupy():
    """Return CuPy, imported when it is first needed."""
    return import_module("cupy")


def supports(x: Tensor) -> bool:
    """Return whether CUDA kernels can run on x, on its device, in its dtype, on this machine."""
    return x.device.type == "cuda" and x.dtype in CUDA_TYPES and why_unavailable() is None


def why_unsupported(x: Tensor) -> str:
    """Return why CUDA kernels cannot run on x, and the remedy."""
    if reason := why_unavailable():
        return reason
    if x.device.type != "cuda":
        return f"x is on {x.device}, the CUDA kernels run on a GPU: move it with .cuda()"
    names = ", ".join(dtype_name(dtype) for dtype in CUDA_TYPES)
    return f"x is {x.dtype}, the CUDA kernels take {names}: cast it, or choose another impl"


def architecture_name(index: int) -> str:
    """Return the architecture of a GPU, such as "sm_90"."""
    return f"sm_{compute_capability(index)}"


@cached_constant
def tested_architectures() -> dict[str, bool]:
    """Return whether `pytest -m gpu` has passed with these sources, for each recorded architecture.

    It reads data/results/gpu-tests-sm_NN.json of the checkout, or its copy in the wheel, and raises
    UserError for a damaged file.
    """
    records = [path for data in data_places() for path in data.glob("results/gpu-tests-sm_*.json")]
    return {
        path.stem.removeprefix("gpu-tests-"): recorded_hash(path) == sources_hash()
        for path in sorted(records)
    }


def recorded_hash(path: Path) -> str:
    """Return the hash of the sources that a record was made with."""
    try:
        return json.loads(path.read_text("utf-8"))["numbers"]["sources"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = f"no record of the GPU tests ({type(error).__name__}: {error})"
        raise UserError(f"{path}: {reason}: remove it, or run `pytest -m gpu` again") from None


def sources_hash() -> str:
    """Return a hash of the files that decide what a GPU computes: this folder and its inputs.

    Modules that find compilers or cache facts about the machine are left out.
    """
    key = hashlib.sha256()
    kernels, package = SOURCES.parents[:2]
    inputs = package / "dtypes.py", kernels / "layout.py", kernels / "torch_library.py"
    for path in sorted([*SOURCES.glob("*.*"), *inputs]):
        key.update(path.read_text("utf-8").encode())
    return key.hexdigest()[:16]


def is_trusted_on(x: Tensor) -> bool:
    """Return whether the kernels' tests have passed on the architecture of x's GPU."""
    return tested_architectures().get(architecture_name(x.device.index), False)


@cache
def inline_headers(source: str) -> str:
    """Return a source with the headers that it includes inlined.

    Otherwise CuPy's cache would not notice a change in a header.
    """
    lines = [f'#line 1 "{source}"']
    for number, line in enumerate((SOURCES / source).read_text(encoding="utf-8").splitlines(), 1):
        if include := re.fullmatch(r'#include "(.*)"', line):
            lines += [inline_headers(include[1]), f'#line {number + 1} "{source}"']
        else:
            lines.append(line)
    return "\n".join(lines) + "\n"


@cache
def compile_for_gpu(program: str, kernel: str, device: int):
    """Return a kernel of a program, compiled for the current GPU, which is `device`.

    program  CUDA source, as `inline_headers` returns it

    The number of the device keeps the kernels of several GPUs apart in the cache.
    """
    module = cupy().RawModule(code=program, options=("-std=c++17",), name_expressions=[kernel])
    return module.get_function(kernel)
