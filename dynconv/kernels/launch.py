"""Launches the CUDA kernels of *.cu: on a GPU through CuPy, on CPU tensors through the simulator.

CuPy is imported here and nowhere else, when somebody asks for a kernel. It compiles each with NVRTC
for the GPU at hand, in about a second, and keeps it in ~/.cupy/kernel_cache. It does so with
-ftz=true: float32 numbers below 1e-38 count as 0.
"""

import re
import warnings
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from dynconv.kernels import simulate

SOURCES = Path(__file__).parent
NUMBERS = {
    torch.float32: "float",
    torch.float64: "double",
    torch.float16: "float16",
    torch.bfloat16: "bfloat16",
}


class NoGpuKernels(RuntimeError):
    """The CUDA kernels cannot run; the message says why and how to go on."""


@torch.compiler.assume_constant_result
def missing() -> str | None:
    """Why the CUDA kernels cannot run on this machine, or None if they can."""
    return _missing()


@cache
def _missing() -> str | None:
    if find_spec("cupy") is None:
        return "no CuPy: pip install 'dynconv[gpu]'"
    with warnings.catch_warnings(record=True) as caught:  # PyTorch says there what hinders it
        warnings.simplefilter("always")
        found = torch.cuda.is_available()
    if not found:
        hint = f" ({str(caught[0].message).splitlines()[0]})" if caught else ""
        return f"PyTorch sees no GPU{hint}: see nvidia-smi, and install a CUDA build of torch"
    try:
        cupy().cuda.runtime.getDeviceCount()
        cupy().cuda.nvrtc.getVersion()
    except Exception as error:  # CuPy's libraries or the driver
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        return f"CuPy does not start ({first}): pip install 'dynconv[gpu]', for a driver of CUDA 13"
    return None


def cupy():
    """CuPy, imported when it is first needed."""
    return import_module("cupy")


def runs(x: Tensor) -> bool:
    """Is there a CUDA kernel for x: on a GPU that CuPy reaches, in one of four dtypes?"""
    return x.device.type == "cuda" and x.dtype in NUMBERS and missing() is None


def obstacle(x: Tensor) -> str:
    """Why there is none for x, and the remedy."""
    if reason := missing():
        return reason
    if x.device.type != "cuda":
        return f"x is on {x.device}, the CUDA kernels run on a GPU: move it with .cuda()"
    names = ", ".join(str(dtype).removeprefix("torch.") for dtype in NUMBERS)
    return f"x is {x.dtype}, the CUDA kernels take {names}: cast it, or choose another impl"


@cache
def code(source: str) -> str:
    """The text of a source with the headers that it includes, as every compiler gets it.

    One text, since CuPy's cache would not notice that a header has changed.
    """
    lines = [f'#line 1 "{source}"']
    for number, line in enumerate((SOURCES / source).read_text(encoding="utf-8").splitlines(), 1):
        if found := re.fullmatch(r'#include "(.*)"', line):
            lines += [code(found[1]), f'#line {number + 1} "{source}"']
        else:
            lines.append(line)
    return "\n".join(lines) + "\n"


class Launch(NamedTuple):
    """How a kernel is launched: a one-dimensional grid of blocks (x, y), dynamic shared bytes."""

    blocks: int
    block: tuple[int, int]
    shared: int = 0


def launch(source: str, kernel: str, how: Launch, device: torch.device, *arguments) -> None:
    """Launch `kernel`, such as "light_conv<float, 4, false>", on PyTorch's current stream.

    arguments  Tensors become their addresses and None a null pointer, int an int, float a float;
               numpy's numbers stay what they are.
    Raises NoGpuKernels when the kernel cannot be compiled or launched.
    """
    values = [convert(argument) for argument in arguments]
    if device.type == "cpu":
        function = simulated(source, kernel)
        function((how.blocks,), how.block, values, shared_mem=how.shared)
        return
    gpu = cupy().cuda
    stream = gpu.Stream.from_external(Stream(torch.cuda.current_stream(device).cuda_stream))
    try:
        with gpu.Device(device.index), stream:
            function = compiled(source, kernel, device.index)
            function((how.blocks,), how.block, tuple(values), shared_mem=how.shared)
    except (gpu.compiler.CompileException, RuntimeError) as error:  # CUDA's are RuntimeErrors
        remedy = "choose another impl, or see dynconv doctor"
        if torch.cuda.is_current_stream_capturing():
            remedy = "call it once before the graph is captured: a kernel compiles at first use"
        name = torch.cuda.get_device_name(device)
        raise NoGpuKernels(f"{kernel} of {source} on {name}: {error}; {remedy}") from error


class Stream:
    """A stream of PyTorch's as CuPy takes it, by the CUDA stream protocol."""

    def __init__(self, address: int):
        self.address = address

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.address


@cache
def compiled(source: str, kernel: str, device: int):
    """The kernel for the GPU that is current."""
    module = cupy().RawModule(code=code(source), options=("-std=c++17",), name_expressions=[kernel])
    return module.get_function(kernel)


@cache
def simulated(source: str, kernel: str):
    return simulate.Module(code(source), [kernel]).get_function(kernel)


def convert(argument) -> np.generic:
    """One argument as numpy's number of the size that the kernel expects."""
    if isinstance(argument, np.generic):  # first: numpy's float64 is a float, too
        return argument
    if argument is None:
        return np.uint64(0)
    if isinstance(argument, Tensor):
        return np.uint64(argument.data_ptr())
    if isinstance(argument, int):
        if argument >= 2**31:
            raise ValueError(f"a size of {argument:,} is more than an int holds: split the input")
        return np.int32(argument)
    return np.float32(argument)
