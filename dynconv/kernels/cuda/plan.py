"""What a launch plan is made of: arrays without data, launches, and lists of both.

A plan depends only on the shapes, strides and dtypes of the tensors, and making one needs no GPU.
The same plan is run on a GPU (call.py), simulated and traced on a CPU, and used to predict times
(dynconv.lab).
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from dynconv.kernels.constant import cached_constant

SOURCES = Path(__file__).parent
"""the folder of the CUDA sources"""
CUDA_TYPES = {
    torch.float32: "float",
    torch.float64: "double",
    torch.float16: "float16",
    torch.bfloat16: "bfloat16",
}
"""the dtypes that the kernels take, by their names in the sources"""


def constant_of(header: str, name: str) -> int:
    """Return the value of `constexpr int NAME = value` in a header, its only definition."""
    text = (SOURCES / header).read_text(encoding="utf-8")
    (value,) = re.findall(rf"^constexpr int {name} = (\d+);", text, re.MULTILINE)
    return int(value)


VECTOR_BYTES = constant_of("number.cuh", "VECTOR_BYTES")
"""bytes that a lane loads with one instruction"""
SIMULATED_ARCHITECTURE = 90
"""sm_90, the GPU architecture that a CPU simulates"""


class ArraySpec(NamedTuple):
    """The shape, strides, dtype and alignment of a tensor, without its data."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    alignment: int = VECTOR_BYTES
    """alignment of its address in bytes: a power of two up to VECTOR_BYTES"""
    architecture: int = SIMULATED_ARCHITECTURE
    """architecture of the device that it is on: 90 is sm_90"""


def describe_tensor(x: Tensor) -> ArraySpec:
    """Describe a tensor for a plan."""
    return array_of(plan_key(x))


def plan_key(x: Tensor) -> tuple:
    """Return all that a plan depends on, in half the time that an ArraySpec takes."""
    return x.shape, x.stride(), x.dtype, x.data_ptr() % VECTOR_BYTES, x.get_device()


def array_of(key: tuple) -> ArraySpec:
    """Describe the tensor that has this key."""
    shape, strides, dtype, offset, device = key  # the device of a CPU is -1
    architecture = compute_capability(device) if device >= 0 else SIMULATED_ARCHITECTURE
    return ArraySpec(shape, strides, dtype, math.gcd(offset, VECTOR_BYTES), architecture)


@cached_constant
def compute_capability(index: int) -> int:
    """Return the compute capability of a GPU as one number: 90 for sm_90."""
    major, minor = torch.cuda.get_device_capability(index)
    return 10 * major + minor


def contiguous_array(
    shape: Sequence[int], dtype: torch.dtype, architecture: int = SIMULATED_ARCHITECTURE
) -> ArraySpec:
    """Describe a contiguous tensor, for example one that is not allocated yet."""
    strides = [math.prod(shape[i + 1 :]) for i in range(len(shape))]
    return ArraySpec(tuple(shape), tuple(strides), dtype, architecture=architecture)


def contiguous_like(x: ArraySpec) -> ArraySpec:
    """Describe a contiguous tensor of x's shape and dtype, on x's device."""
    return contiguous_array(x.shape, x.dtype, x.architecture)


@dataclass(frozen=True)
class Launch:
    """One launch of a kernel: a one-dimensional grid of two-dimensional blocks.

    source     the file of the kernel, in this folder
    name       the kernel, a template, and `template` its arguments
    blocks     the number of blocks, and `block` the threads of each along x and y
    arguments  of the kernel in order: the names of arrays, None for null pointers, and numbers; an
               int is passed as a C int, a NumPy scalar in its own type
    shared     bytes of dynamic shared memory per block
    """

    source: str
    name: str
    template: tuple[str | int | bool, ...]
    blocks: int
    block: tuple[int, int]
    shared: int
    arguments: tuple

    @cached_property
    def kernel(self) -> str:
        """The kernel's name expression, such as "light_conv<float, 4, false>"."""
        parts = [str(z).lower() if isinstance(z, bool) else str(z) for z in self.template]
        return f"{self.name}<{', '.join(parts)}>"


class LaunchPlan(NamedTuple):
    """The launches in order, and the arrays to allocate for them: outputs and scratch."""

    outputs: dict[str, ArraySpec]
    launches: tuple[Launch, ...]
    scratch: dict[str, ArraySpec] = {}


def outer_strides(*arrays: ArraySpec) -> list[np.int64]:
    """Return each array's strides along batch and time; a time stride must fit into a C int."""
    for z in arrays:
        if abs(z.strides[1]) >= 2**31:
            raise ValueError(f"a time stride of {z.strides[1]:,} exceeds a C int: copy the tensor")
    return [np.int64(stride) for z in arrays for stride in z.strides[:2]]
