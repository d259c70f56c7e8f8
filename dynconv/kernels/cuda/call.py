"""Runs plans: allocates what a plan asks for and launches its kernels, on a GPU through CuPy."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from dynconv.kernels.cuda import plan
from dynconv.kernels.cuda.build import NoGpuKernels, compiled, cupy
from dynconv.kernels.cuda.plan import Launch, Plan, array
from dynconv.kernels.layout import offsets, rows, taps
from dynconv.kernels.schema import implement


class Kernels:
    """The operators of torch.ops.dynconv by their CUDA kernels.

    start  launches one kernel: start(launch, arguments), the arguments as in `Launch`, but with
           tensors for the names of arrays
    """

    def __init__(self, start: Callable[[Launch, list], None]):
        self.start = start

    def run(self, planned: Callable[..., Plan], tensors: dict[str, Tensor | None], *sizes):
        """Run the plan that `planned` makes for these tensors; return its outputs, a list."""
        found = planned(*map(array, tensors.values()), *sizes)
        device = next(iter(tensors.values())).device
        make = torch.empty if found.launches else torch.zeros
        for name, made in (found.outputs | found.scratch).items():
            tensors[name] = make(made.shape, dtype=made.dtype, device=device)
        for launch in found.launches:
            self.start(launch, [tensors[z] if isinstance(z, str) else z for z in launch.arguments])
        return [tensors[name] for name in found.outputs]

    def conv(self, x: Tensor, weight: Tensor, pad_left: int) -> Tensor:
        return self.run(plan.conv, {"x": rows(x), "weight": taps(weight)}, pad_left)[0]

    def conv_grad_input(self, g: Tensor, weight: Tensor, pad_left: int) -> Tensor:
        return self.run(plan.conv_grad_input, {"g": rows(g), "weight": taps(weight)}, pad_left)[0]

    def conv_grad_weight(self, g: Tensor, x: Tensor, shape: list[int], pad_left: int) -> Tensor:
        tensors = {"g": rows(g), "x": rows(x)}
        return self.run(plan.conv_grad_weight, tensors, tuple(shape), pad_left)[0]

    def conv_backward(
        self, g: Tensor, x: Tensor, weight: Tensor, pad_left: int
    ) -> tuple[Tensor, Tensor]:
        tensors = {"g": rows(g), "x": rows(x), "weight": taps(weight)}
        dx, dweight = self.run(plan.conv_backward, tensors, pad_left)
        return dx, dweight

    def conv_softmax(
        self, x: Tensor, logits: Tensor, seed: Tensor | None, dropout: float, pad_left: int
    ) -> Tensor:
        tensors = {"x": rows(x), "logits": taps(logits), "seed": seed}
        return self.run(plan.conv_softmax, tensors, dropout, pad_left)[0]

    def conv_softmax_backward(
        self,
        g: Tensor,
        x: Tensor,
        logits: Tensor,
        seed: Tensor | None,
        dropout: float,
        pad_left: int,
    ) -> tuple[Tensor, Tensor]:
        tensors = {"g": rows(g), "x": rows(x), "logits": taps(logits), "seed": seed}
        dx, dlogits = self.run(plan.conv_softmax_backward, tensors, dropout, pad_left)
        return dx, dlogits

    def talk(
        self, x: Tensor, left: Tensor, right: Tensor | None, max_left: int, max_right: int
    ) -> Tensor:
        left, right = offsets(x, left, right)
        tensors = {"x": rows(x), "left": left, "right": right}
        return self.run(plan.talk, tensors, max_left, max_right)[0]

    def talk_backward(
        self, g: Tensor, x: Tensor, left: Tensor, right: Tensor | None, max_left: int,
        max_right: int,
    ) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
        """Return the gradients of x, left and right; the last one is empty when right is None."""
        dtype = left.dtype
        left, right = offsets(x, left, right)
        tensors = {"g": rows(g), "x": rows(x), "left": left, "right": right}
        dx, dleft, dright = self.run(plan.talk_backward, tensors, max_left, max_right)
        return dx, dleft.to(dtype), dright.to(dtype)

    def cumulative_mean(self, x: Tensor, backward: bool) -> Tensor:
        return self.run(plan.cumulative_mean, {"x": rows(x)}, backward)[0]


def launch_on_gpu(launch: Launch, arguments: list) -> None:
    """Launch a kernel on the GPU of its tensors, on PyTorch's current stream.

    Raises NoGpuKernels when the kernel cannot be compiled or launched.
    """
    device = next(z.device for z in arguments if isinstance(z, Tensor))
    values = tuple(map(convert, arguments))
    gpu = cupy().cuda
    stream = gpu.Stream.from_external(Stream(torch.cuda.current_stream(device).cuda_stream))
    try:
        with gpu.Device(device.index), stream:
            function = compiled(launch.source, launch.kernel, device.index)
            function((launch.blocks,), launch.block, values, shared_mem=launch.shared)
    except (gpu.compiler.CompileException, RuntimeError) as error:  # CUDA's are RuntimeErrors
        remedy = "choose another impl, or see dynconv doctor"
        if torch.cuda.is_current_stream_capturing():
            remedy = "call it once before the graph is captured: a kernel compiles at first use"
        name = torch.cuda.get_device_name(device)
        text = f"{launch.kernel} of {launch.source} on {name}: {error}; {remedy}"
        raise NoGpuKernels(text) from error


class Stream:
    """One of PyTorch's streams as CuPy takes it, by the CUDA stream protocol."""

    def __init__(self, address: int):
        self.address = address

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.address


def convert(argument) -> np.generic:
    """Return a kernel's argument as a number of the size that the kernel expects.

    Tensors become their addresses and None a null pointer, an int becomes an int, a float a float;
    numpy's numbers stay what they are.
    """
    if isinstance(argument, np.generic):  # first: numpy's float64 is also a float
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


on_gpu = Kernels(launch_on_gpu)
implement(
    "CUDA", on_gpu.conv, on_gpu.conv_grad_input, on_gpu.conv_grad_weight, on_gpu.conv_backward,
    on_gpu.conv_softmax, on_gpu.conv_softmax_backward, on_gpu.talk, on_gpu.talk_backward,
    on_gpu.cumulative_mean,
)  # fmt: skip
