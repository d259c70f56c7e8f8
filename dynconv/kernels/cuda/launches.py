"""Plans the launches of each operator: which kernels run, on which grids, with which arguments.

`conv`, `talk_conv` and the others compute nothing: each returns the launches of the operation whose
name and arguments it has. `Kernels` of call.py makes a method of the same name from it, which runs
the launches; the simulator and the benchmark read them.

Sizes: x is (B, T, C); heads H, taps K, channels per head R = C / H.
"""

import math
from collections.abc import Sequence

import numpy as np
import torch

from dynconv.dtypes import accumulator_dtype
from dynconv.kernels.cuda.grids import (
    TILE,
    BandGrid,
    ColumnGrid,
    Grid,
    WarpGrid,
    beyond_taps,
    elements_per_load,
    lanes_per_head,
    tensor_core_grid,
    vector_width,
    walk_length,
)
from dynconv.kernels.cuda.plan import (
    CUDA_TYPES,
    ArraySpec,
    Launch,
    LaunchPlan,
    contiguous_array,
    contiguous_like,
    outer_strides,
)

MIN_TENSOR_CORE_PRODUCTS = 2**25
"""the fewest products for which DynamicConv's gradients use tensor cores: with fewer, their extra
launch would cost more than they save, as `dynconv bench kernels --predict` counts it (not
measured)"""


def conv(x: ArraySpec, weight: ArraySpec, pad_left: int) -> LaunchPlan:
    """Plan out = weight * x; weight (H, K) or (B, T, H, K)."""
    return plan_convolution(x, weight, pad_left, ("x", "weight", "out"), flipped=False)


def conv_grad_input(g: ArraySpec, weight: ArraySpec, pad_left: int) -> LaunchPlan:
    """Plan dx from g and the weight: the convolution of g with the kernels reversed."""
    pad_right = weight.shape[-1] - 1 - pad_left
    return plan_convolution(g, weight, pad_right, ("g", "weight", "dx"), flipped=True)


def plan_convolution(
    x: ArraySpec, weight: ArraySpec, pad: int, names: tuple[str, ...], flipped: bool
) -> LaunchPlan:
    """Plan weight * x; `names` are the operator's names of x, the weight and the output."""
    (_, T, C), (H, K) = x.shape, weight.shape[-2:]
    if len(weight.shape) == 2:
        source, kernel, of_weight = "lightconv.cu", "light_conv", []
    else:
        source, kernel, of_weight = "dynamicconv.cu", "dynamic_conv", outer_strides(weight)
    if grid := tensor_core_grid(H, K, x):
        arguments = *names, T, C, H, K, pad, grid.walk, *outer_strides(x), *of_weight
        launch = grid.make_launch(source, f"{kernel}_band", arguments, grid.D, flipped)
    else:
        light = {"max_warps": 8, "per_tap": 1, "per_head": 1}
        warps = WarpGrid([x], H, K, **({"per_head": beyond_taps(x)} if of_weight else light))
        arguments = *names, T, C, H, K, pad, warps.G, warps.chunk, *outer_strides(x), *of_weight
        launch = warps.make_launch(source, kernel, arguments, flipped)
    return LaunchPlan({names[-1]: contiguous_like(x)}, (launch,))


def conv_grad_weight(g: ArraySpec, x: ArraySpec, shape: Sequence[int], pad_left: int) -> LaunchPlan:
    """Plan dweight, of the given shape, from g and x."""
    (_, T, C), (H, K) = x.shape, shape[-2:]
    if grid := tensor_core_grid(H, K, g, x, whole_heads=True):
        return band_grad_weight(grid, g, x, shape, pad_left)
    if len(shape) == 2:
        plan = light_gradients(g, x, shape, pad_left, with_input=False)
        assert plan is not None  # without dx the taps always fit
        return plan
    warps = WarpGrid([g, x], H, K, per_head=beyond_taps(x))
    arguments = "g", "x", "dweight", T, C, H, K, pad_left, warps.chunk, *outer_strides(g, x)
    launch = warps.make_launch("dynamicconv.cu", "dynamic_weight_grad", arguments, warps.G)
    return LaunchPlan({"dweight": contiguous_array(shape, x.dtype)}, (launch,))


def band_grad_weight(
    grid: BandGrid, g: ArraySpec, x: ArraySpec, shape: Sequence[int], pad_left: int
) -> LaunchPlan:
    """Plan dweight on tensor cores."""
    (_, T, C), (H, K) = x.shape, shape[-2:]
    sizes = T, C, H, K, pad_left, grid.walk, *outer_strides(g, x)
    outputs = {"dweight": contiguous_array(shape, x.dtype)}
    if len(shape) == 4:
        source, name = "dynamicconv.cu", "dynamic_weight_grad_band"
        launch = grid.make_launch(source, name, ("g", "x", "dweight", *sizes), grid.D)
        return LaunchPlan(outputs, (launch,))
    name = "light_weight_grad_band"
    launch = grid.make_launch("lightconv.cu", name, ("g", "x", "partial", *sizes), grid.D)
    partial = contiguous_array((grid.walks, H * K), torch.float32)
    return LaunchPlan(outputs, (launch, sum_rows(x, partial)), {"partial": partial})


def sum_rows(x: ArraySpec, partial: ArraySpec) -> Launch:
    """Plan the last step of LightConv's dweight: the sum of all walks' rows."""
    walks, columns = partial.shape
    template, arguments = (CUDA_TYPES[x.dtype],), ("partial", "dweight", np.int64(walks), columns)
    return Launch("lightconv.cu", "sum_rows", template, -(-columns // 32), (32, 32), 0, arguments)


def conv_backward(g: ArraySpec, x: ArraySpec, weight: ArraySpec, pad_left: int) -> LaunchPlan:
    """Plan dx and dweight.

    If DynamicConv's taps fit into shared memory, one launch of the other kernels computes both,
    while tensor cores need two. So they are used only from MIN_TENSOR_CORE_PRODUCTS products on.
    """
    H, K = weight.shape[-2:]
    grid = tensor_core_grid(H, K, g, x)
    together: LaunchPlan | None = None
    if len(weight.shape) == 2 and grid:
        together = light_band_gradients(grid, g, x, weight.shape, pad_left)
    elif len(weight.shape) == 2:
        together = light_gradients(g, x, weight.shape, pad_left, with_input=True)
    elif grid is None or math.prod(x.shape) * K < MIN_TENSOR_CORE_PRODUCTS:
        together = dynamic_gradients(g, x, weight, pad_left)
    if together:
        return together
    dx = conv_grad_input(g, weight, pad_left)
    dweight = conv_grad_weight(g, x, weight.shape, pad_left)
    return LaunchPlan(
        dx.outputs | dweight.outputs, dx.launches + dweight.launches, dx.scratch | dweight.scratch
    )


def dynamic_gradients(
    g: ArraySpec, x: ArraySpec, weight: ArraySpec, pad_left: int
) -> LaunchPlan | None:
    """Plan dx and dweight together; None when the taps do not fit into shared memory."""
    (_, T, C), (H, K) = x.shape, weight.shape[2:]
    warps = WarpGrid(
        [g, x], H, K, per_tap=2 * TILE, per_head=2 * beyond_taps(x), extra_positions=K - 1
    )
    if warps.chunk < K:
        return None
    arguments = (
        "g", "x", "weight", "dx", "dweight", T, C, H, K, K - 1 - pad_left, warps.chunk,
        *outer_strides(g, x, weight),
    )  # fmt: skip
    launch = warps.make_launch("dynamicconv.cu", "dynamic_conv_grad", arguments, warps.G)
    return LaunchPlan({"dx": contiguous_like(x), "dweight": contiguous_like(weight)}, (launch,))


def light_band_gradients(
    grid: BandGrid, g: ArraySpec, x: ArraySpec, shape: Sequence[int], pad_left: int
) -> LaunchPlan:
    """Plan dx and dweight of LightConv on tensor cores."""
    (_, T, C), (H, K) = x.shape, shape
    arguments = (
        "g", "x", "weight", "dx", "partial", T, C, H, K, K - 1 - pad_left, grid.walk,
        *outer_strides(g, x),
    )  # fmt: skip
    partial = contiguous_array((grid.walks * (C // H // (8 * grid.V)), H * K), torch.float32)
    launches = (
        grid.make_launch("lightconv.cu", "light_grad_band", arguments, grid.D),
        sum_rows(x, partial),
    )
    outputs = {"dx": contiguous_like(x), "dweight": contiguous_array(shape, x.dtype)}
    return LaunchPlan(outputs, launches, {"partial": partial})


def light_gradients(
    g: ArraySpec, x: ArraySpec, shape: Sequence[int], pad_left: int, *, with_input: bool
) -> LaunchPlan | None:
    """Plan dweight, and dx if `with_input`; None if the taps then do not fit into shared memory."""
    (B, T, C), (H, K) = x.shape, shape
    G = lanes_per_head(C // H, vector_width(C // H, 4, g, x))  # columns of sums for each head
    count = B * -(-T // TILE)
    walk = walk_length(count * -(-H * G // 32), 16)  # long walks write fewer partial sums
    walks = -(-count // walk)
    # Each lane's sums and 16 bytes more, and the taps themselves and one more.
    per_head = G * elements_per_load(x) + 1
    warps = WarpGrid([g, x], H, K, per_tap=G + 1, per_head=per_head, walks=walks)
    if with_input and warps.chunk < K:
        return None
    weight, dx = ("weight", "dx") if with_input else (None, None)
    arguments = (
        "g", "x", weight, dx, "partial", B, T, C, H, K, K - 1 - pad_left, warps.chunk, walk,
        *outer_strides(g, x),
    )  # fmt: skip
    partial = contiguous_array((walks, H * K), accumulator_dtype(x.dtype))
    launches = (
        warps.make_launch("lightconv.cu", "light_conv_grad", arguments, G, with_input),
        sum_rows(x, partial),
    )
    outputs = {"dx": contiguous_like(x)} if with_input else {}
    outputs["dweight"] = contiguous_array(shape, x.dtype)
    return LaunchPlan(outputs, launches, {"partial": partial})


def softmax_conv(
    x: ArraySpec, logits: ArraySpec, seed: ArraySpec | None, dropout: float, pad_left: int
) -> LaunchPlan:
    """Plan DynamicConv of logits (B, T, H, K), with DropConnect if there is a seed int64 (1,)."""
    (_, T, C), (H, K) = x.shape, logits.shape[2:]
    warps = WarpGrid([x], H, K, per_head=beyond_taps(x) + 2 * TILE)
    arguments = (
        "x", "logits", seed and "seed", "out", T, C, H, K, pad_left, warps.G, warps.chunk,
        *dropconnect_arguments(dropout), *outer_strides(x, logits),
    )  # fmt: skip
    return LaunchPlan(
        {"out": contiguous_like(x)},
        (warps.make_launch("softmaxconv.cu", "softmax_conv", arguments),),
    )


def softmax_conv_backward(
    g: ArraySpec,
    x: ArraySpec,
    logits: ArraySpec,
    seed: ArraySpec | None,
    dropout: float,
    pad_left: int,
) -> LaunchPlan:
    """Plan the gradients of x and of the logits."""
    (B, T, C), (H, K) = x.shape, logits.shape[2:]
    source, dropped, mask = "softmaxconv.cu", seed and "seed", dropconnect_arguments(dropout)
    for_logits = WarpGrid([g, x], H, K, per_head=beyond_taps(x) + 3 * TILE)
    for_input = WarpGrid([g, x], H, K, per_head=beyond_taps(x))
    logits_grad = (
        "g", "x", "logits", dropped, "dlogits", "scales", T, C, H, K, pad_left,
        for_logits.chunk, *mask, *outer_strides(g, x, logits),
    )  # fmt: skip
    data_grad = (
        "g", "logits", dropped, "scales", "dx", T, C, H, K, K - 1 - pad_left,
        for_input.G, for_input.chunk, *mask, *outer_strides(g, logits),
    )  # fmt: skip
    launches = (
        for_logits.make_launch(source, "softmax_logits_grad", logits_grad, for_logits.G),
        for_input.make_launch(source, "softmax_data_grad", data_grad),
    )
    scratch = {"scales": contiguous_array((B, T, H, 2), accumulator_dtype(x.dtype))}
    return LaunchPlan(
        {"dx": contiguous_like(x), "dlogits": contiguous_like(logits)}, launches, scratch
    )


def dropconnect_arguments(dropout: float) -> list[np.generic]:
    """Return DropConnect's threshold for 32 random bits, and the scale of the weights it keeps."""
    return [np.uint32(dropout * 2**32), np.float64(1 / (1 - dropout))]


def talk_conv(
    x: ArraySpec, left: ArraySpec, right: ArraySpec | None, max_left: int, max_right: int
) -> LaunchPlan:
    """Plan TaLK; offsets are (B, T, H), and `right` is None in a causal layer."""
    (_, T, C), H = x.shape, left.shape[2]
    columns = ColumnGrid(C // H, H, max_left, max_right, x)
    x_batch, x_time = outer_strides(x)
    arguments = (
        "x", "left", right and "right", "out", T, C, H, max_left, max_right, columns.ring,
        columns.stretch, x_batch, int(x_time),
    )  # fmt: skip
    launch = columns.make_launch("talk.cu", "talk_conv", arguments, columns.width)
    return LaunchPlan({"out": contiguous_like(x)}, (launch,))


def talk_conv_backward(
    g: ArraySpec,
    x: ArraySpec,
    left: ArraySpec,
    right: ArraySpec | None,
    max_left: int,
    max_right: int,
) -> LaunchPlan:
    """Plan the gradients of x, left and right; the last one is empty when right is None."""
    (B, T, C), H = x.shape, left.shape[2]
    columns = ColumnGrid(C // H, H, max_left, max_right, g, x)
    g_batch, g_time, x_batch, x_time = outer_strides(g, x)
    reach = "left", right and "right", "reach", T, H, max_left, max_right
    grad = (
        "g", "x", "left", right and "right", "reach", "dx", "dleft", right and "dright", T, C, H,
        max_left, max_right, columns.ring, columns.stretch, lanes_per_head(C // H, columns.V),
        g_batch, int(g_time), x_batch, int(x_time),
    )  # fmt: skip
    template, blocks = (CUDA_TYPES[left.dtype],), B * -(-H // 8)
    launches = (
        Launch("talk.cu", "talk_reach", template, blocks, (8, 128), 0, reach),
        columns.make_launch("talk.cu", "talk_grad", grad, columns.width),
    )
    dright = contiguous_like(right) if right else contiguous_array((0, T, H), left.dtype)
    outputs = {"dx": contiguous_like(x), "dleft": contiguous_like(left), "dright": dright}
    return LaunchPlan(outputs, launches, {"reach": contiguous_array((B, H, 2), torch.int32)})


def cumulative_mean(x: ArraySpec) -> LaunchPlan:
    """Plan the mean of all positions so far."""
    return plan_mean(x, ("x", "out"), backward=False)


def cumulative_mean_backward(g: ArraySpec) -> LaunchPlan:
    """Plan x's gradient from the gradient of the means."""
    return plan_mean(g, ("g", "dx"), backward=True)


def plan_mean(x: ArraySpec, names: tuple[str, str], backward: bool) -> LaunchPlan:
    """Plan the means of x or, backward, x's gradient; `names` name input and output."""
    B, T, C = x.shape
    read, written = names
    V = vector_width(C, 4, x)
    threads = min(128, -(-C // (32 * V)) * 32)
    stretch = max(16, math.isqrt(T))  # about as many positions as there are pieces
    pieces = -(-T // stretch)
    grid = Grid(x, V, B * pieces * -(-C // (threads * V)), (threads, 1))
    sizes = T, C, stretch, *outer_strides(x)
    launches = (
        grid.make_launch("average.cu", "stretch_sums", (read, "sums", *sizes), backward),
        grid.make_launch(
            "average.cu", "cumulative_mean", (read, "sums", written, *sizes), backward
        ),
    )
    scratch = {"sums": contiguous_array((B, pieces, C), accumulator_dtype(x.dtype))}
    return LaunchPlan({written: contiguous_like(x)}, launches, scratch)
