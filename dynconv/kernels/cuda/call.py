"""Runs plans: allocates their outputs and launches their kernels, on a GPU through CuPy."""

from collections.abc import Callable
from functools import cache, lru_cache
from inspect import signature
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dynconv.kernels.cuda import launches
from dynconv.kernels.cuda.build import NoGpuKernelsError, code, compile_for_gpu, cupy
from dynconv.kernels.cuda.plan import Launch, LaunchPlan, array
from dynconv.kernels.layout import contiguous_channels, contiguous_offsets, contiguous_taps
from dynconv.kernels.schema import implement

LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "x": contiguous_channels,
    "g": contiguous_channels,
    "weight": contiguous_taps,
    "logits": contiguous_taps,
    "left": contiguous_offsets,
    "right": contiguous_offsets,
    "seed": Tensor.contiguous,
}
"""functions that bring each argument into the memory layout that plans expect"""
PLANS = 4096
"""plans that each operator keeps; a batch of another length needs another plan"""


def operator(planned: Callable[..., LaunchPlan]) -> Callable:
    """Return a method of Kernels that runs the plan that `planned` makes, and returns its outputs.

    The method takes a Tensor for each Array that `planned` takes. Plans are cached, because making
    one costs the CPU more than running it.
    """
    names = tuple(signature(planned).parameters)

    @lru_cache(PLANS)
    def plan(*arguments) -> LaunchPlan:
        made = planned(*arguments)
        return made._replace(launches=tuple(map(convert_numbers, made.launches)))

    def method(self, *arguments):
        tensors: dict[str, Tensor] = {}
        described: list[Any] = []
        for name, z in zip(names, arguments, strict=True):
            if isinstance(z, Tensor):
                tensors[name] = z = LAYOUTS[name](z)
                described.append(array(z))
            else:
                described.append(tuple(z) if isinstance(z, list) else z)  # a list has no hash
        return self.run(plan(*described), tensors)

    method.__name__ = planned.__name__
    return method


class Kernels:
    """Runs the operators of torch.ops.dynconv with their CUDA kernels.

    start  start(launch, arguments) launches one kernel; `arguments` are the launch's, with tensors
           instead of the names of arrays
    """

    def __init__(self, start: Callable[[Launch, list], object]):
        self.start = start

    conv = operator(launches.conv)
    conv_grad_input = operator(launches.conv_grad_input)
    conv_grad_weight = operator(launches.conv_grad_weight)
    conv_backward = operator(launches.conv_backward)
    conv_softmax = operator(launches.conv_softmax)
    conv_softmax_backward = operator(launches.conv_softmax_backward)
    talk = operator(launches.talk)
    talk_backward = operator(launches.talk_backward)
    cumulative_mean = operator(launches.cumulative_mean)

    def run(self, made: LaunchPlan, tensors: dict[str, Tensor]) -> Tensor | tuple[Tensor, ...]:
        """Run a plan on its named input tensors, and return its outputs: zeros if B is 0."""
        first = next(iter(tensors.values()))
        empty = len(first) == 0
        allocate = torch.zeros if empty else torch.empty
        for name, z in (made.outputs | made.scratch).items():
            tensors[name] = allocate(z.shape, dtype=z.dtype, device=first.device)
        for launch in () if empty else made.launches:
            self.start(launch, [tensors[z] if isinstance(z, str) else z for z in launch.arguments])
        outputs = tuple(tensors[name] for name in made.outputs)
        return outputs if len(outputs) > 1 else outputs[0]


def launch_on_gpu(launch: Launch, arguments: list) -> None:
    """Launch a kernel on the GPU of its tensors, on PyTorch's current stream.

    Raises NoGpuKernelsError when the kernel cannot be compiled or launched.
    """
    device = next(z.device for z in arguments if isinstance(z, Tensor))
    values = tuple(map(convert, arguments))
    gpu = cupy().cuda
    try:
        address = torch.cuda.current_stream(device).cuda_stream
        with gpu.Device(device.index), cupy_stream(address, device.index):
            function = compile_for_gpu(code(launch.source), launch.kernel, device.index)
            function((launch.blocks,), launch.block, values, shared_mem=launch.shared)
    except (gpu.compiler.CompileException, RuntimeError) as error:  # CUDA's are RuntimeErrors
        remedy = "choose another impl, or see dynconv doctor"
        if torch.cuda.is_current_stream_capturing():
            remedy = "call it once before the graph is captured: a kernel compiles at first use"
        name = torch.cuda.get_device_name(device)
        text = f"{launch.kernel} of {launch.source} on {name}: {error}; {remedy}"
        raise NoGpuKernelsError(text) from error


class Stream:
    """Presents one of PyTorch's streams to CuPy, by the CUDA stream protocol."""

    def __init__(self, address: int):
        self.address = address

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.address


@cache
def cupy_stream(address: int, device: int):
    """Return CuPy's object for a stream of PyTorch, which never destroys one.

    The default stream has the same address on every device.
    """
    return cupy().cuda.Stream.from_external(Stream(address))


def convert_numbers(launch: Launch) -> Launch:
    """Convert the launch's arguments to what the kernel expects, except the names of arrays."""
    converted = (z if isinstance(z, str) else convert(z) for z in launch.arguments)
    return launch._replace(arguments=tuple(converted))


def convert(argument) -> np.generic:
    """Convert a kernel's argument to a NumPy scalar of the size that the kernel expects.

    A tensor becomes its address and None a null pointer; an int becomes a C int, a float a C float.
    NumPy scalars are returned unchanged.
    """
    if isinstance(argument, np.generic):  # first: numpy's float64 is also a float
        return argument
    if argument is None:
        return np.uint64(0)
    if isinstance(argument, Tensor):
        return np.uint64(argument.data_ptr())
    if isinstance(argument, int):
        if argument >= 2**31:
            raise ValueError(f"a size of {argument:,} exceeds a C int: split the input")
        return np.int32(argument)
    return np.float32(argument)


on_gpu = Kernels(launch_on_gpu)
implement(
    "CUDA", on_gpu.conv, on_gpu.conv_grad_input, on_gpu.conv_grad_weight, on_gpu.conv_backward,
    on_gpu.conv_softmax, on_gpu.conv_softmax_backward, on_gpu.talk, on_gpu.talk_backward,
    on_gpu.cumulative_mean,
)  # fmt: skip
