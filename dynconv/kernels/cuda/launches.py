"""Plans the launches of each operator: kernels, grids, blocks, shared memory and arguments.

A plan depends only on the shapes, strides and dtypes of the tensors, and making one needs no GPU.
The same plan is run on a GPU (call.py), simulated and traced on a CPU, and used to predict times
(dynconv.lab).

Sizes: x is (B, T, C); heads H, taps K, channels per head R = C / H.
"""

import math
import re
from collections.abc import Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from dynconv.kernels.dtypes import accumulator

SOURCES = Path(__file__).parent
CUDA_TYPES = {
    torch.float32: "float",
    torch.float64: "double",
    torch.float16: "float16",
    torch.bfloat16: "bfloat16",
}
SHARED = 48 * 1024
"""bytes of shared memory that a block may use on every GPU"""
BLOCKS = 264
"""blocks that fill a GPU: two for each multiprocessor of an H100"""
WALKS = 2048
"""walks along the time axis that keep every warp of a GPU busy"""
TENSOR_CORES = 80
"""the first architecture that multiplies matrices of bfloat16, sm_80"""


def constant_of(header: str, name: str) -> int:
    """Return the value of `constexpr int NAME = value` in a header, its only definition."""
    text = (SOURCES / header).read_text(encoding="utf-8")
    return int(re.search(rf"^constexpr int {name} = (\d+);", text, re.MULTILINE)[1])


TILE = constant_of("window.cuh", "TILE")
"""positions of a warp's tile"""
BAND = constant_of("band.cuh", "BAND")
"""positions of a tile for tensor cores"""
VECTOR_BYTES = constant_of("number.cuh", "VECTOR_BYTES")
"""bytes that a lane loads with one instruction"""


class Array(NamedTuple):
    """Describes the memory of a tensor."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    alignment: int = VECTOR_BYTES
    """alignment of its address in bytes: a power of two up to VECTOR_BYTES"""
    architecture: int = 90
    """architecture of the device that it is on: 90 is sm_90, which a CPU simulates"""


def array(x: Tensor) -> Array:
    """Describe a tensor for a plan."""
    alignment = math.gcd(x.data_ptr(), VECTOR_BYTES)
    described = Array(tuple(x.shape), x.stride(), x.dtype, alignment)
    return described._replace(architecture=compute_capability(x.device)) if x.is_cuda else described


@cache
def compute_capability(device: torch.device) -> int:
    """Return the compute capability of a GPU as a number: 90 for sm_90."""
    major, minor = torch.cuda.get_device_capability(device)
    return 10 * major + minor


def contiguous_array(shape: Sequence[int], dtype: torch.dtype, architecture: int = 90) -> Array:
    """Describe a contiguous tensor, for example one that is not allocated yet."""
    strides = [math.prod(shape[i + 1 :]) for i in range(len(shape))]
    return Array(tuple(shape), tuple(strides), dtype, architecture=architecture)


def like(x: Array) -> Array:
    """Describe a contiguous tensor of x's shape and dtype."""
    return contiguous_array(x.shape, x.dtype)


class Launch(NamedTuple):
    """Describes one launch of a kernel: a one-dimensional grid of two-dimensional blocks.

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

    @property
    def kernel(self) -> str:
        """The kernel's name expression, such as "light_conv<float, 4, false>"."""
        return name_expression(self.name, *self.template)


@lru_cache(1024, typed=True)  # True and 1 are different templates
def name_expression(name: str, *template: str | int | bool) -> str:
    """Return the C++ expression of an instantiated template."""
    parts = [str(z).lower() if isinstance(z, bool) else str(z) for z in template]
    return f"{name}<{', '.join(parts)}>"


class LaunchPlan(NamedTuple):
    """Lists the launches in order, and the arrays to allocate for them: outputs and scratch."""

    outputs: dict[str, Array]
    launches: tuple[Launch, ...]
    scratch: dict[str, Array] = {}


def strides(*arrays: Array) -> list[np.int64]:
    """Return each array's strides along batch and time."""
    return [np.int64(stride) for z in arrays for stride in z.strides[:2]]


def vector_width(R: int, maximum: int, *arrays: Array) -> int:
    """Return V, the number of channels that one instruction loads: a power of two up to `maximum`.

    V divides R and all strides, and every array is aligned to V elements.
    """
    size = arrays[0].dtype.itemsize
    V = min(maximum, VECTOR_BYTES // size)
    while V > 1 and (
        R % V or any(z.alignment % (V * size) or any(s % V for s in z.strides[:2]) for z in arrays)
    ):
        V //= 2
    return V


def power_of_two(n: int) -> int:
    """Return the smallest power of two that is at least n."""
    return 1 << (n - 1).bit_length()


def lanes_per_head(R: int, V: int) -> int:
    """Return G, the number of lanes of a warp that share a head."""
    return min(32, power_of_two(-(-R // V)))


def elements_per_load(x: Array) -> int:
    """Return how many elements of x's accumulator dtype one load takes: QUAD in taps.cuh."""
    return VECTOR_BYTES // accumulator(x.dtype).itemsize


class Grid:
    """Launches a kernel that loads V channels of x at once.

    cuda_type  the name of x's dtype in CUDA
    size       blocks, block and shared bytes of the Launch
    """

    def __init__(self, x: Array, V: int, blocks: int, block: tuple[int, int], shared: int = 0):
        self.cuda_type, self.V, self.size = CUDA_TYPES[x.dtype], V, (blocks, block, shared)

    def launch(self, source: str, name: str, arguments: tuple, *template: int | bool) -> Launch:
        """Return a launch of a kernel whose template begins with cuda_type and V."""
        return Launch(source, name, (self.cuda_type, self.V, *template), *self.size, arguments)


class Warps(Grid):
    """Launches a kernel whose warps each process a tile, or a walk of tiles, of 32 / G heads.

    G      lanes that share a head
    chunk  taps in shared memory at a time, a multiple of TILE
    """

    def __init__(self, arrays: Sequence[Array], H: int, K: int, *, fixed: int, per_tap: int = TILE,
                 maximum: int = 4, more: int = 0, walks: int | None = None):  # fmt: skip
        """Choose the sizes of the grid.

        arrays   x or g or both, which are read V channels at a time
        per_tap  elements of x's accumulator that each tap of a head takes in shared memory
        fixed    elements that each head takes besides
        maximum  warps per block
        more     positions of a sentence besides its T
        walks    the number of walks over all sentences, if warps do not take single tiles
        """
        x = arrays[0]
        B, T, C = x.shape
        V = vector_width(C // H, 4, *arrays)
        self.G = lanes_per_head(C // H, V)
        heads = 32 // self.G
        size = heads * accumulator(x.dtype).itemsize
        self.chunk = min(-(-K // TILE), (SHARED // size - fixed) // (per_tap * TILE)) * TILE
        shared = size * (self.chunk * per_tap + fixed)
        rows, count = (B, -(-(T + more) // TILE)) if walks is None else (1, walks)
        groups = -(-H // heads)
        # Warps of a block share rows in the cache, but every multiprocessor should get a block.
        n = max(1, min(maximum, count, SHARED // shared))
        while n > 1 and rows * -(-count // n) * groups < BLOCKS:
            n //= 2
        super().__init__(x, V, rows * -(-count // n) * groups, (32, n), n * shared)


class Bands(Grid):
    """Launches a kernel for tensor cores, whose warps each walk along tiles of BAND positions.

    D      blocks of BAND rows of x that a tile meets
    walk   tiles of a warp
    walks  of all warps, those of different channels counted once
    """

    def __init__(self, x: Array, V: int, K: int, channels: int, number: torch.dtype):
        """Choose the sizes of the grid.

        channels  of a warp
        number    the dtype of its band in shared memory
        """
        B, T, C = x.shape
        self.D = -(-K // BAND) + 1
        tiles, columns = -(-T // BAND), C // channels
        # Long walks load fewer rows twice; short walks keep more warps busy.
        self.walk = min(8, max(1, B * tiles * columns // WALKS))
        walks, n = -(-tiles // self.walk), 4
        self.walks = B * walks
        while n > 1 and (n > walks or B * -(-walks // n) * columns < BLOCKS):
            n //= 2
        shared = n * BAND * (BAND * self.D + 8) * number.itemsize  # PITCH in band.cuh
        super().__init__(x, V, B * -(-walks // n) * columns, (32, n), shared)


def bands(H: int, K: int, *arrays: Array) -> Bands | None:
    """Return how to launch tensor cores on x, or on g and x, or None for the other kernels.

    The rule is: half precision, sm_80 or later, 8 to 64 taps, and heads of a multiple of 32
    channels, of which a lane can load 4 or 8 at once. With fewer taps tensor cores would take more
    instructions; with more, more registers than there are.
    """
    x = arrays[0]
    R = x.shape[2] // H
    V = vector_width(R // 8, 8, *arrays) if R % 8 == 0 else 1
    half = x.dtype in (torch.float16, torch.bfloat16) and x.architecture >= TENSOR_CORES
    if not (half and V >= 4 and TILE <= K <= 4 * BAND):
        return None
    if len(arrays) == 1:
        return Bands(x, V, K, 8 * V, x.dtype)
    return Bands(x, V, K, R, torch.float32)  # for the weights' gradient, of sums


def conv(x: Array, weight: Array, pad_left: int) -> LaunchPlan:
    """Plan out = weight * x; weight (H, K) or (B, T, H, K)."""
    return convolution(x, weight, pad_left, ("x", "weight", "out"), flipped=False)


def conv_grad_input(g: Array, weight: Array, pad_left: int) -> LaunchPlan:
    """Plan dx from g and the weight: the convolution of g with the kernels reversed."""
    pad_right = weight.shape[-1] - 1 - pad_left
    return convolution(g, weight, pad_right, ("g", "weight", "dx"), flipped=True)


def convolution(
    x: Array, weight: Array, pad: int, names: tuple[str, ...], flipped: bool
) -> LaunchPlan:
    """Plan weight * x; `names` are the operator's names of x, the weight and the output."""
    (_, T, C), (H, K) = x.shape, weight.shape[-2:]
    if len(weight.shape) == 2:
        source, kernel, of_weight = "lightconv.cu", "light_conv", []
    else:
        source, kernel, of_weight = "dynamicconv.cu", "dynamic_conv", strides(weight)
    if grid := bands(H, K, x):
        arguments = *names, T, C, H, K, pad, grid.walk, *strides(x), *of_weight
        launch = grid.launch(source, f"{kernel}_band", arguments, grid.D, flipped)
    else:
        light = {"maximum": 8, "per_tap": 1, "fixed": 1}
        warps = Warps([x], H, K, **({"fixed": elements_per_load(x)} if of_weight else light))
        arguments = *names, T, C, H, K, pad, warps.G, warps.chunk, *strides(x), *of_weight
        launch = warps.launch(source, kernel, arguments, flipped)
    return LaunchPlan({names[-1]: like(x)}, (launch,))


def conv_grad_weight(g: Array, x: Array, shape: Sequence[int], pad_left: int) -> LaunchPlan:
    """Plan dweight, of the given shape, from g and x."""
    (_, T, C), (H, K) = x.shape, shape[-2:]
    if grid := bands(H, K, g, x):
        return band_grad_weight(grid, g, x, shape, pad_left)
    if len(shape) == 2:
        plan = light_gradients(g, x, shape, pad_left, with_input=False)
        assert plan is not None  # without dx the taps always fit
        return plan
    warps = Warps([g, x], H, K, fixed=elements_per_load(x))
    arguments = "g", "x", "dweight", T, C, H, K, pad_left, warps.chunk, *strides(g, x)
    launch = warps.launch("dynamicconv.cu", "dynamic_weight_grad", arguments, warps.G)
    return LaunchPlan({"dweight": contiguous_array(shape, x.dtype)}, (launch,))


def band_grad_weight(
    grid: Bands, g: Array, x: Array, shape: Sequence[int], pad_left: int
) -> LaunchPlan:
    """Plan dweight on tensor cores."""
    (_, T, C), (H, K) = x.shape, shape[-2:]
    sizes = T, C, H, K, pad_left, grid.walk, *strides(g, x)
    outputs = {"dweight": contiguous_array(shape, x.dtype)}
    if len(shape) == 4:
        source, name = "dynamicconv.cu", "dynamic_weight_grad_band"
        launch = grid.launch(source, name, ("g", "x", "dweight", *sizes), grid.D)
        return LaunchPlan(outputs, (launch,))
    name = "light_weight_grad_band"
    launch = grid.launch("lightconv.cu", name, ("g", "x", "partial", *sizes), grid.D)
    partial = contiguous_array((grid.walks, H * K), torch.float32)
    return LaunchPlan(outputs, (launch, sum_rows(x, partial)), {"partial": partial})


def sum_rows(x: Array, partial: Array) -> Launch:
    """Plan the last step of LightConv's dweight: the sum of all walks' rows."""
    walks, columns = partial.shape
    template, arguments = (CUDA_TYPES[x.dtype],), ("partial", "dweight", np.int64(walks), columns)
    return Launch("lightconv.cu", "sum_rows", template, -(-columns // 32), (32, 32), 0, arguments)


def conv_backward(g: Array, x: Array, weight: Array, pad_left: int) -> LaunchPlan:
    """Plan dx and dweight.

    That takes two launches on tensor cores, and otherwise one if the taps fit into shared memory.
    """
    if bands(*weight.shape[-2:], g, x):
        together = None
    elif len(weight.shape) == 2:
        together = light_gradients(g, x, weight.shape, pad_left, with_input=True)
    else:
        together = dynamic_gradients(g, x, weight, pad_left)
    if together:
        return together
    dx = conv_grad_input(g, weight, pad_left)
    dweight = conv_grad_weight(g, x, weight.shape, pad_left)
    return LaunchPlan(
        dx.outputs | dweight.outputs,
        dx.launches + dweight.launches,
        dx.scratch | dweight.scratch,
    )


def dynamic_gradients(g: Array, x: Array, weight: Array, pad_left: int) -> LaunchPlan | None:
    """Plan dx and dweight together; None when the taps do not fit into shared memory."""
    (_, T, C), (H, K) = x.shape, weight.shape[2:]
    warps = Warps([g, x], H, K, per_tap=2 * TILE, fixed=2 * elements_per_load(x), more=K - 1)
    if warps.chunk < K:
        return None
    arguments = (
        "g", "x", "weight", "dx", "dweight", T, C, H, K, K - 1 - pad_left, warps.chunk,
        *strides(g, x, weight),
    )  # fmt: skip
    launch = warps.launch("dynamicconv.cu", "dynamic_conv_grad", arguments, warps.G)
    return LaunchPlan({"dx": like(x), "dweight": like(weight)}, (launch,))


def light_gradients(
    g: Array, x: Array, shape: Sequence[int], pad_left: int, *, with_input: bool
) -> LaunchPlan | None:
    """Plan dweight, and dx if `with_input`; None if the taps then do not fit into shared memory."""
    (B, T, C), (H, K) = x.shape, shape
    G = lanes_per_head(C // H, vector_width(C // H, 4, g, x))  # columns of sums for each head
    count = B * -(-T // TILE)
    # Long walks write fewer partial sums; short walks keep more warps busy.
    walk = min(16, max(1, count * -(-H * G // 32) // WALKS))
    walks = -(-count // walk)
    warps = Warps([g, x], H, K, per_tap=G + 1, fixed=1, walks=walks)  # the sums and the tap itself
    if with_input and warps.chunk < K:
        return None
    weight, dx = ("weight", "dx") if with_input else (None, None)
    arguments = (
        "g", "x", weight, dx, "partial", B, T, C, H, K, K - 1 - pad_left, warps.chunk, walk,
        *strides(g, x),
    )  # fmt: skip
    partial = contiguous_array((walks, H * K), accumulator(x.dtype))
    launches = (
        warps.launch("lightconv.cu", "light_conv_grad", arguments, G, with_input),
        sum_rows(x, partial),
    )
    outputs = {"dx": like(x)} if with_input else {}
    outputs["dweight"] = contiguous_array(shape, x.dtype)
    return LaunchPlan(outputs, launches, {"partial": partial})


def conv_softmax(
    x: Array, logits: Array, seed: Array | None, dropout: float, pad_left: int
) -> LaunchPlan:
    """Plan DynamicConv of logits (B, T, H, K), with DropConnect if there is a seed int64 (1,)."""
    (_, T, C), (H, K) = x.shape, logits.shape[2:]
    warps = Warps([x], H, K, fixed=elements_per_load(x) + 2 * TILE)
    arguments = (
        "x", "logits", seed and "seed", "out", T, C, H, K, pad_left, warps.G, warps.chunk,
        *dropconnect(dropout), *strides(x, logits),
    )  # fmt: skip
    return LaunchPlan(
        {"out": like(x)}, (warps.launch("softmaxconv.cu", "softmax_conv", arguments),)
    )


def conv_softmax_backward(
    g: Array, x: Array, logits: Array, seed: Array | None, dropout: float, pad_left: int
) -> LaunchPlan:
    """Plan the gradients of x and of the logits."""
    (B, T, C), (H, K) = x.shape, logits.shape[2:]
    source, dropped, mask = "softmaxconv.cu", seed and "seed", dropconnect(dropout)
    for_logits = Warps([g, x], H, K, fixed=elements_per_load(x) + 3 * TILE)
    for_input = Warps([g, x], H, K, fixed=elements_per_load(x))
    logits_grad = (
        "g", "x", "logits", dropped, "dlogits", "scales", T, C, H, K, pad_left,
        for_logits.chunk, *mask, *strides(g, x, logits),
    )  # fmt: skip
    data_grad = (
        "g", "logits", dropped, "scales", "dx", T, C, H, K, K - 1 - pad_left,
        for_input.G, for_input.chunk, *mask, *strides(g, logits),
    )  # fmt: skip
    launches = (
        for_logits.launch(source, "softmax_logits_grad", logits_grad, for_logits.G),
        for_input.launch(source, "softmax_data_grad", data_grad),
    )
    scratch = {"scales": contiguous_array((B, T, H, 2), accumulator(x.dtype))}
    return LaunchPlan({"dx": like(x), "dlogits": like(logits)}, launches, scratch)


def dropconnect(dropout: float) -> list[np.generic]:
    """Return DropConnect's threshold for 32 random bits, and the scale of the weights it keeps."""
    return [np.uint32(dropout * 2**32), np.float64(1 / (1 - dropout))]


def talk(x: Array, left: Array, right: Array | None, max_left: int, max_right: int) -> LaunchPlan:
    """Plan TaLK; offsets are (B, T, H), and `right` is None in a causal layer."""
    (_, T, C), H = x.shape, left.shape[2]
    columns = Columns(C // H, max_left, max_right, x)
    arguments = (
        "x", "left", right and "right", "out", T, C, H, max_left, max_right, columns.ring,
        columns.stretch, *strides(x),
    )  # fmt: skip
    return LaunchPlan({"out": like(x)}, (columns.launch("talk.cu", "talk_conv", arguments),))


def talk_backward(
    g: Array, x: Array, left: Array, right: Array | None, max_left: int, max_right: int
) -> LaunchPlan:
    """Plan the gradients of x, left and right; the last one is empty when right is None."""
    (B, T, C), H = x.shape, left.shape[2]
    columns = Columns(C // H, max_left, max_right, g, x)
    reach = "left", right and "right", "reach", T, H, max_left, max_right
    grad = (
        "g", "x", "left", right and "right", "reach", "dx", "dleft", right and "dright", T, C, H,
        max_left, max_right, columns.ring, columns.stretch, lanes_per_head(C // H, columns.V),
        *strides(g, x),
    )  # fmt: skip
    template, blocks = (CUDA_TYPES[left.dtype],), B * -(-H // 8)
    launches = (
        Launch("talk.cu", "talk_reach", template, blocks, (8, 128), 0, reach),
        columns.launch("talk.cu", "talk_grad", grad),
    )
    dright = like(right) if right else contiguous_array((0, T, H), left.dtype)
    outputs = {"dx": like(x), "dleft": like(left), "dright": dright}
    return LaunchPlan(outputs, launches, {"reach": contiguous_array((B, H, 2), torch.int32)})


class Columns(Grid):
    """Launches TaLK's kernels, whose threads each walk V channels of a stretch of positions.

    V        2 in half precision, so that a lane loads four bytes at once
    ring     rows of prefix sums in shared memory, a power of two: enough for the widest window if
             32 threads' columns of it fit at V = 1
    stretch  positions per thread
    """

    def __init__(self, R: int, max_left: int, max_right: int, *arrays: Array):
        x = arrays[0]
        B, T, C = x.shape
        widest = power_of_two(max_left + max_right + 2)
        V = vector_width(R, 2 if x.dtype.itemsize == 2 else 1, *arrays)
        if ring_rows(V, x) < widest:
            V = 1
        column = V * accumulator(x.dtype).itemsize
        self.ring = min(widest, ring_rows(V, x))
        fit = SHARED // (self.ring * column) // 32 * 32
        threads = min(128, fit, -(-C // (32 * V)) * 32)
        across = B * -(-C // (threads * V))
        # Short stretches load more of their neighbours' tokens, but long ones leave the GPU idle.
        self.stretch = 128 if across * -(-T // 128) >= BLOCKS else 32
        shared = self.ring * threads * column
        super().__init__(x, V, across * -(-T // self.stretch), (threads, 1), shared)


def ring_rows(V: int, x: Array) -> int:
    """Return how many rows for 32 threads fit into shared memory, a power of two."""
    return power_of_two(SHARED // (32 * V * accumulator(x.dtype).itemsize) + 1) // 2


def cumulative_mean(x: Array, backward: bool) -> LaunchPlan:
    """Plan the mean of all positions so far, or x's gradient from the gradient of the means."""
    B, T, C = x.shape
    V = vector_width(C, 4, x)
    threads = min(128, -(-C // (32 * V)) * 32)
    stretch = max(16, math.isqrt(T))  # about as many positions as there are pieces
    pieces = -(-T // stretch)
    grid = Grid(x, V, B * pieces * -(-C // (threads * V)), (threads, 1))
    sizes = T, C, stretch, *strides(x)
    launches = (
        grid.launch("average.cu", "stretch_sums", ("x", "sums", *sizes), backward),
        grid.launch("average.cu", "cumulative_mean", ("x", "sums", "out", *sizes), backward),
    )
    scratch = {"sums": contiguous_array((B, pieces, C), accumulator(x.dtype))}
    return LaunchPlan({"out": like(x)}, launches, scratch)
