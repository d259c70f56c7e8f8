"""Runs plans: allocates their outputs and launches their kernels, on a GPU through CuPy."""

from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from inspect import signature
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from dynconv.kernels.cuda import launches
from dynconv.kernels.cuda.build import NoGpuKernelsError, compile_for_gpu, cupy, inline_headers
from dynconv.kernels.cuda.plan import ArraySpec, Launch, LaunchPlan, array_of, plan_key
from dynconv.kernels.layout import contiguous_channels, contiguous_offsets, contiguous_taps
from dynconv.kernels.torch_library import eager, implement

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
Values = Sequence[int | np.generic]
"""the arguments of a launch: addresses as int, numbers as NumPy scalars"""
MAX_CACHED_PLANS = 4096
"""maximum plans that each operator keeps; a batch of another length needs another plan"""


class PreparedPlan(NamedTuple):
    """A plan with all that is the same in each of its runs.

    launches   each launch, and a function that picks its arguments from the addresses of the
               tensors (the inputs, then the arrays) and the constants
    constants  the numbers among the launches' arguments
    arrays     shape, strides and dtype of what to allocate: the outputs, then scratch
    outputs    the places of the outputs among the tensors
    empty      whether B is 0
    """

    launches: list[tuple[Launch, Callable[[tuple], Any]]]
    constants: tuple[np.generic, ...]
    arrays: list[tuple]
    outputs: slice
    empty: bool


def needs_copy(name: str, z: ArraySpec) -> bool:
    """Return whether an argument must be copied, because plans expect another memory layout."""
    tensor = torch.empty_strided(z.shape, z.strides, dtype=z.dtype, device="meta")
    return LAYOUTS[name](tensor) is not tensor


def prepare_plan(plan: LaunchPlan, inputs: dict[str, ArraySpec]) -> PreparedPlan:
    """Prepare a plan for input tensors of these names."""
    arrays = plan.outputs | plan.scratch
    places = {name: i for i, name in enumerate((*inputs, *arrays))}
    constants: list[np.generic] = []
    launches: list[tuple[Launch, Callable[[tuple[Any, ...]], Any]]] = []
    for launch in plan.launches:
        picked = []
        for z in launch.arguments:
            if isinstance(z, str):
                picked.append(places[z])
            else:
                picked.append(len(places) + len(constants))
                constants.append(convert(z))
        launches.append((launch, itemgetter(*picked)))
    outputs = slice(len(inputs), len(inputs) + len(plan.outputs))
    empty = next(iter(inputs.values())).shape[0] == 0
    to_allocate = [z[:3] for z in arrays.values()]
    return PreparedPlan(launches, tuple(constants), to_allocate, outputs, empty)


def plan_runner(make_plan: Callable[..., LaunchPlan]) -> Callable:
    """Return a method of Kernels that runs the plan of `make_plan`, and returns its outputs.

    The method takes a Tensor for each ArraySpec that `make_plan` takes. Plans are cached, because
    making one costs the CPU more than running it.
    """
    names = tuple(signature(make_plan).parameters)

    @lru_cache(MAX_CACHED_PLANS)
    def cached_plan(*keys) -> PreparedPlan | None:
        """Return the plan, or None if a tensor has another memory layout than plans expect."""
        named = dict(zip(names, keys, strict=True))
        inputs = {name: array_of(key) for name, key in named.items() if key and name in LAYOUTS}
        if any(needs_copy(name, z) for name, z in inputs.items()):
            return None
        return prepare_plan(make_plan(**named | inputs), inputs)

    def method(self, *arguments):
        tensors: list[Tensor] = []
        keys: list[Any] = []
        for z in arguments:
            if isinstance(z, Tensor):
                tensors.append(z)
                keys.append(plan_key(z))
            else:
                keys.append(tuple(z) if isinstance(z, list) else z)  # a list has no hash
        plan = cached_plan(*keys)
        if plan is None:
            named = zip(names, arguments, strict=True)
            laid_out = (LAYOUTS[name](z) if isinstance(z, Tensor) else z for name, z in named)
            return method(self, *laid_out)
        return self.run(plan, tensors)

    method.__name__ = make_plan.__name__
    return method


class Kernels:
    """Runs the operators of torch.ops.dynconv with their CUDA kernels.

    start  start(launch, values, tensors) launches one kernel; `values` are the launch's arguments,
           addresses as int and numbers as NumPy scalars, and `tensors` all tensors of the plan,
           to which the addresses belong
    """

    def __init__(self, start: Callable[[Launch, Values, list[Tensor]], object]):
        self.start = start

    conv = plan_runner(launches.conv)
    conv_grad_input = plan_runner(launches.conv_grad_input)
    conv_grad_weight = plan_runner(launches.conv_grad_weight)
    conv_backward = plan_runner(launches.conv_backward)
    softmax_conv = plan_runner(launches.softmax_conv)
    softmax_conv_backward = plan_runner(launches.softmax_conv_backward)
    talk_conv = plan_runner(launches.talk_conv)
    talk_conv_backward = plan_runner(launches.talk_conv_backward)
    cumulative_mean = plan_runner(launches.cumulative_mean)
    cumulative_mean_backward = plan_runner(launches.cumulative_mean_backward)

    def run(self, plan: PreparedPlan, tensors: list[Tensor]) -> Tensor | tuple[Tensor, ...]:
        """Run a plan on its input tensors, and return its outputs: zeros if B is 0."""
        device = tensors[0].device
        for shape, strides, dtype in plan.arrays:  # torch.empty takes half as long again
            tensors.append(torch.empty_strided(shape, strides, dtype=dtype, device=device))
        outputs = tuple(tensors[plan.outputs])
        if plan.empty:
            torch._foreach_zero_(outputs)
        else:
            values = (*[z.data_ptr() for z in tensors], *plan.constants)
            for launch, pick in plan.launches:
                self.start(launch, pick(values), tensors)
        return outputs if len(outputs) > 1 else outputs[0]


def launch_on_gpu(launch: Launch, values: Values, tensors: list[Tensor]) -> None:
    """Launch a kernel on the GPU of its tensors, on PyTorch's current stream.

    CuPy passes an int in 8 bytes, as addresses need, and a NumPy scalar in its own size.

    Raises NoGpuKernelsError when the kernel cannot be compiled or launched.
    """
    device = tensors[0].device
    gpu = cupy().cuda
    try:
        address = torch.cuda.current_stream(device).cuda_stream
        with gpu.Device(device.index), cupy_stream(address, device.index):
            function = compile_for_gpu(inline_headers(launch.source), launch.kernel, device.index)
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


def convert(argument) -> np.generic:
    """Convert a kernel's argument to a NumPy scalar of the size that the kernel expects.

    A tensor becomes its address and None a null pointer; an int becomes a C int, a float a C float.
    NumPy scalars are returned unchanged.
    """
    if isinstance(argument, Tensor):
        return np.uint64(argument.data_ptr())
    if isinstance(argument, np.generic):  # before float: numpy's float64 is one
        return argument
    if argument is None:
        return np.uint64(0)
    if isinstance(argument, int):
        if argument >= 2**31:
            raise ValueError(f"a size of {argument:,} exceeds a C int: split the input")
        return np.int32(argument)
    return np.float32(argument)


gpu_kernels = Kernels(launch_on_gpu)
implement(
    "CUDA", gpu_kernels.conv, gpu_kernels.conv_grad_input, gpu_kernels.conv_grad_weight,
    gpu_kernels.conv_backward, gpu_kernels.softmax_conv, gpu_kernels.softmax_conv_backward,
    gpu_kernels.talk_conv, gpu_kernels.talk_conv_backward, gpu_kernels.cumulative_mean,
    gpu_kernels.cumulative_mean_backward,
)  # fmt: skip
cuda_ops = eager(gpu_kernels, ["conv", "softmax_conv", "talk_conv", "cumulative_mean"])
"""the operators for eager calls with tensors of a GPU"""
