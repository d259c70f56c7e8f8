"""What each operator launches: kernels, shapes of blocks, strides.

The functions take tensors of one device and of one of four dtypes; on CPU tensors the simulator
runs the same kernels. Sizes of x are (B, T, C), heads H, taps K, channels of a head R = C / H.
"""

import math

import numpy as np
import torch
from torch import Tensor

from dynconv.kernels.launch import NUMBERS, Launch, launch

TILE = 8  # positions of a warp: TILE in window.cuh
LIMIT = 48 * 1024  # bytes of shared memory that a block of any GPU may have
BLOCKS = 264  # two for each multiprocessor of a large GPU


def rows(x: Tensor) -> Tensor:
    """x itself if its channels lie side by side; batch and time may have any strides."""
    return x if x.stride(2) == 1 else x.contiguous()


def strides(*tensors: Tensor) -> list[np.int64]:
    """Of batch and time."""
    return [np.int64(stride) for tensor in tensors for stride in tensor.stride()[:2]]


def accumulator(dtype: torch.dtype) -> torch.dtype:
    """What the kernels add up in."""
    return torch.promote_types(dtype, torch.float32)


def vector(R: int, most: int, *tensors: Tensor) -> int:
    """V, how many channels one instruction moves: up to `most`, and never beyond a head's.

    It divides R and all strides, and every tensor begins at a multiple of it.
    """
    size = tensors[0].element_size()
    V = min(most, 16 // size)
    while V > 1 and (
        R % V
        or any(z.stride(0) % V or z.stride(1) % V or z.data_ptr() % (V * size) for z in tensors)
    ):
        V //= 2
    return V


def power_of_two(n: int) -> int:
    """The least one that is not below n."""
    return 1 << (n - 1).bit_length()


def lanes(R: int, V: int) -> int:
    """G, the lanes that share a head."""
    return min(32, power_of_two(-(-R // V)))


class Warps:
    """The launch of a kernel whose warps take a tile of 32 / G heads each, or a walk of tiles.

    chunk  taps that are in shared memory at a time, a multiple of TILE
    """

    def __init__(
        self,
        x: Tensor,
        H: int,
        K: int,
        V: int,
        most: int,
        a_tap: int,
        fixed: int,
        tiles: tuple[int, int],
    ):
        """Shared memory of a warp: for each of its heads and in x's accumulator, a_tap numbers for
        each tap and `fixed` more. tiles: how many sentences, and tiles, or walks, in each.
        """
        C = x.shape[2]
        self.G = lanes(C // H, V)
        heads = 32 // self.G
        size = heads * accumulator(x.dtype).itemsize
        self.chunk = min(-(-K // TILE), (LIMIT // size - fixed) // (a_tap * TILE)) * TILE
        bytes_ = size * (self.chunk * a_tap + fixed)
        B, count = tiles
        groups = -(-H // heads)
        # Warps of one block share rows in the cache; but there must be blocks for a whole GPU.
        n = max(1, min(most, count, LIMIT // bytes_))
        while n > 1 and B * -(-count // n) * groups < BLOCKS:
            n //= 2
        self.launch = Launch(B * -(-count // n) * groups, (32, n), n * bytes_)


def tiles(x: Tensor, more: int = 0) -> tuple[int, int]:
    """Sentences, and tiles of T + more positions in each."""
    return x.shape[0], -(-(x.shape[1] + more) // TILE)


def quad(x: Tensor) -> int:
    """Numbers of x's accumulator in 16 bytes: QUAD in taps.cuh."""
    return 16 // accumulator(x.dtype).itemsize


def mix(x: Tensor, weight: Tensor, pad_left: int) -> Tensor:
    """y = w * x; weight (H, K) or (B, T, H, K)."""
    return convolve(x, weight, pad_left, transposed=False)


def transposed(g: Tensor, weight: Tensor, pad_left: int) -> Tensor:
    """dx, from g and w."""
    return convolve(g, weight, weight.shape[-1] - 1 - pad_left, transposed=True)


def convolve(x: Tensor, weight: Tensor, pad_left: int, transposed: bool) -> Tensor:
    x, (H, K) = rows(x), weight.shape[-2:]
    weight = weight.contiguous() if weight.dim() == 2 else taps(weight)
    B, T, C = x.shape
    out = x.new_empty(B, T, C)
    if B == 0:
        return out
    V = vector(C // H, 4, x)
    flag = str(transposed).lower()
    if weight.dim() == 2:
        source, kernel, more = "lightconv.cu", "light_conv", []
        how = Warps(x, H, K, V, most=8, a_tap=1, fixed=1, tiles=tiles(x))
    else:
        source, kernel, more = "dynamicconv.cu", "dynamic_conv", strides(weight)
        how = Warps(x, H, K, V, most=4, a_tap=TILE, fixed=quad(x), tiles=tiles(x))
    launch(
        source, f"{kernel}<{NUMBERS[x.dtype]}, {V}, {flag}>", how.launch, x.device,
        x, weight, out, T, C, H, K, pad_left, how.G, how.chunk, *strides(x), *more,
    )  # fmt: skip
    return out


def correlate(g: Tensor, x: Tensor, shape: list[int], pad_left: int) -> Tensor:
    """dw, of the given shape, from g and x."""
    if len(shape) == 2:
        return light_gradients(g, x, None, shape, pad_left)[1]
    g, x, (H, K) = rows(g), rows(x), shape[-2:]
    B, T, C = x.shape
    dweight = x.new_empty(shape)
    if B == 0:
        return dweight
    V = vector(C // H, 4, g, x)
    how = Warps(x, H, K, V, most=4, a_tap=TILE, fixed=quad(x), tiles=tiles(x))
    launch(
        "dynamicconv.cu", f"dynamic_weight_grad<{NUMBERS[x.dtype]}, {V}, {how.G}>", how.launch,
        x.device, g, x, dweight, T, C, H, K, pad_left, how.chunk, *strides(g, x),
    )  # fmt: skip
    return dweight


def gradients(g: Tensor, x: Tensor, weight: Tensor, pad_left: int) -> tuple[Tensor, Tensor]:
    """dx and dw at once: in one reading of g and x, if the taps fit into shared memory."""
    together = light_gradients if weight.dim() == 2 else dynamic_gradients
    dx, dweight = together(g, x, weight, weight.shape, pad_left)
    if dx is None:
        dx = transposed(g, weight, pad_left)
    return dx, correlate(g, x, weight.shape, pad_left) if dweight is None else dweight


def dynamic_gradients(
    g: Tensor, x: Tensor, weight: Tensor, shape: list[int], pad_left: int
) -> tuple[Tensor | None, Tensor | None]:
    """dx and dw; None for both when the taps do not fit into shared memory."""
    g, x, weight, (H, K) = rows(g), rows(x), taps(weight), shape[2:]
    B, T, C = x.shape
    V = vector(C // H, 4, g, x)
    how = Warps(x, H, K, V, most=4, a_tap=2 * TILE, fixed=2 * quad(x), tiles=tiles(x, K - 1))
    if how.chunk < K:
        return None, None
    dx, dweight = x.new_empty(B, T, C), x.new_empty(shape)
    if B:
        launch(
            "dynamicconv.cu", f"dynamic_conv_grad<{NUMBERS[x.dtype]}, {V}, {how.G}>", how.launch,
            x.device, g, x, weight, dx, dweight, T, C, H, K, K - 1 - pad_left, how.chunk,
            *strides(g, x, weight),
        )  # fmt: skip
    return dx, dweight


def light_gradients(
    g: Tensor, x: Tensor, weight: Tensor | None, shape: list[int], pad_left: int
) -> tuple[Tensor | None, Tensor]:
    """dw, and with a weight dx; None for dx when the taps do not fit into shared memory."""
    g, x, (H, K) = rows(g), rows(x), shape
    B, T, C = x.shape
    dweight = x.new_empty(H, K)
    if B == 0:
        return x.new_empty(x.shape), dweight.zero_()
    V = vector(C // H, 4, g, x)
    G = lanes(C // H, V)  # so many columns of sums for each head; and the tap itself
    count = B * -(-T // TILE)
    # Long walks make few rows of partial, short ones many warps.
    walk = min(16, max(1, count * -(-H * G // 32) // 2048))
    walks = -(-count // walk)
    how = Warps(x, H, K, V, most=4, a_tap=G + 1, fixed=1, tiles=(1, walks))
    data = weight is not None and how.chunk >= K
    dx = x.new_empty(B, T, C) if data else None
    weight = weight.contiguous() if data else None
    partial = x.new_empty(walks, H * K, dtype=accumulator(x.dtype))
    number = NUMBERS[x.dtype]
    launch(
        "lightconv.cu", f"light_conv_grad<{number}, {V}, {G}, {str(data).lower()}>", how.launch,
        x.device, g, x, weight, dx, partial, B, T, C, H, K, K - 1 - pad_left, how.chunk, walk,
        *strides(g, x),
    )  # fmt: skip
    launch(
        "lightconv.cu", f"sum_rows<{number}>", Launch(-(-H * K // 32), (32, 32)), x.device,
        partial, dweight, np.int64(walks), H * K,
    )  # fmt: skip
    return dx, dweight


def talk(x: Tensor, left: Tensor, right: Tensor | None, max_left: int, max_right: int) -> Tensor:
    """TaLK; offsets (B, T, H), right None where windows end at their position."""
    x, (left, right) = rows(x), offsets(x, left, right)
    B, T, C = x.shape
    H = left.shape[2]
    out = x.new_empty(B, T, C)
    if B == 0:
        return out
    V, how, ring, stretch = columns(C // H, max_left, max_right, x)
    launch(
        "talk.cu", f"talk_conv<{NUMBERS[x.dtype]}, {V}>", how, x.device,
        x, left, right, out, T, C, H, max_left, max_right, ring, stretch, *strides(x),
    )  # fmt: skip
    return out


def talk_backward(
    g: Tensor, x: Tensor, left: Tensor, right: Tensor | None, max_left: int, max_right: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of x, left and right; the last one is empty when right is None."""
    g, x, dtype = rows(g), rows(x), left.dtype
    left, right = offsets(x, left, right)
    B, T, C = x.shape
    H = left.shape[2]
    dx, dleft = x.new_empty(B, T, C), torch.empty_like(left)
    dright = torch.empty_like(left if right is not None else left[:0])
    if B:
        reach = torch.empty(B, H, 2, dtype=torch.int32, device=x.device)
        launch(
            "talk.cu", f"talk_reach<{NUMBERS[left.dtype]}>", Launch(B * -(-H // 8), (8, 128)),
            x.device, left, right, reach, T, H, max_left, max_right,
        )  # fmt: skip
        V, how, ring, stretch = columns(C // H, max_left, max_right, g, x)
        launch(
            "talk.cu", f"talk_grad<{NUMBERS[x.dtype]}, {V}>", how, x.device,
            g, x, left, right, reach, dx, dleft, None if right is None else dright, T, C, H,
            max_left, max_right, ring, stretch, lanes(C // H, V), *strides(g, x),
        )  # fmt: skip
    return dx, dleft.to(dtype), dright.to(dtype)


def offsets(x: Tensor, left: Tensor, right: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """The offsets in the dtype in which the kernels add up."""
    dtype = accumulator(x.dtype)
    left = left.to(dtype).contiguous()
    return left, None if right is None else right.to(dtype).contiguous()


def columns(
    R: int, max_left: int, max_right: int, *tensors: Tensor
) -> tuple[int, Launch, int, int]:
    """TaLK's V, launch, rows of the ring and positions of a stretch.

    Two channels of half precision make the four bytes that a lane's read of memory should have.
    The ring holds the widest window if 32 threads' columns of it, at V = 1, fit into shared memory.
    """
    x = tensors[0]
    B, T, C = x.shape
    wanted = power_of_two(max_left + max_right + 2)
    V = vector(R, 2 if x.element_size() == 2 else 1, *tensors)
    if ring_rows(V, x) < wanted:
        V = 1
    column = V * accumulator(x.dtype).itemsize
    ring = min(wanted, ring_rows(V, x))
    threads = min(128, LIMIT // (ring * column) // 32 * 32, -(-C // (32 * V)) * 32)
    across = B * -(-C // (threads * V))
    # Each stretch reads some of its neighbours' tokens, too; but there must be enough of them.
    stretch = 128 if across * -(-T // 128) >= BLOCKS else 32
    blocks = across * -(-T // stretch)
    return V, Launch(blocks, (threads, 1), ring * threads * column), ring, stretch


def ring_rows(V: int, x: Tensor) -> int:
    """The most, a power of two, that fit into shared memory for 32 threads."""
    return power_of_two(LIMIT // (32 * V * accumulator(x.dtype).itemsize) + 1) // 2


def cumulative_mean(x: Tensor, backward: bool) -> Tensor:
    """The mean of all positions so far, or the gradient of x from that of the means."""
    x = rows(x)
    B, T, C = x.shape
    out = x.new_empty(B, T, C)
    if B == 0:
        return out
    V = vector(C, 4, x)
    threads = min(128, -(-C // (32 * V)) * 32)
    stretch = max(16, math.isqrt(T))  # a piece is as long as the row of sums before the last one
    how = Launch(B * -(-T // stretch) * -(-C // (threads * V)), (threads, 1))
    sums = x.new_empty(B, -(-T // stretch), C, dtype=accumulator(x.dtype))
    kernel = f"<{NUMBERS[x.dtype]}, {V}, {str(backward).lower()}>"
    sizes = (T, C, stretch, *strides(x))
    launch("average.cu", f"stretch_sums{kernel}", how, x.device, x, sums, *sizes)
    launch("average.cu", f"cumulative_mean{kernel}", how, x.device, x, sums, out, *sizes)
    return out


def softmax_mix(
    x: Tensor, logits: Tensor, seed: Tensor | None, dropout: float, pad_left: int
) -> Tensor:
    """DynamicConv from logits (B, T, H, K); DropConnect where there is a seed, int64 (1,)."""
    x, logits, (H, K) = rows(x), taps(logits), logits.shape[2:]
    B, T, C = x.shape
    out = x.new_empty(B, T, C)
    if B == 0:
        return out
    V = vector(C // H, 4, x)
    how = Warps(x, H, K, V, most=4, a_tap=TILE, fixed=quad(x) + 2 * TILE, tiles=tiles(x))
    launch(
        "softmaxconv.cu", f"softmax_conv<{NUMBERS[x.dtype]}, {V}>", how.launch, x.device,
        x, logits, seed, out, T, C, H, K, pad_left, how.G, how.chunk, *drop(dropout),
        *strides(x, logits),
    )  # fmt: skip
    return out


def softmax_mix_backward(
    g: Tensor, x: Tensor, logits: Tensor, seed: Tensor | None, dropout: float, pad_left: int
) -> tuple[Tensor, Tensor]:
    """Gradients of x and of the logits."""
    g, x, logits, (H, K) = rows(g), rows(x), taps(logits), logits.shape[2:]
    B, T, C = x.shape
    dx, dlogits = x.new_empty(B, T, C), x.new_empty(B, T, H, K)
    if B == 0:
        return dx, dlogits
    scales = x.new_empty(B, T, H, 2, dtype=accumulator(x.dtype))
    number, V = NUMBERS[x.dtype], vector(C // H, 4, g, x)
    how = Warps(x, H, K, V, most=4, a_tap=TILE, fixed=quad(x) + 3 * TILE, tiles=tiles(x))
    launch(
        "softmaxconv.cu", f"softmax_logits_grad<{number}, {V}, {how.G}>", how.launch, x.device,
        g, x, logits, seed, dlogits, scales, T, C, H, K, pad_left, how.chunk, *drop(dropout),
        *strides(g, x, logits),
    )  # fmt: skip
    how = Warps(x, H, K, V, most=4, a_tap=TILE, fixed=quad(x), tiles=tiles(x))
    launch(
        "softmaxconv.cu", f"softmax_data_grad<{number}, {V}>", how.launch, x.device,
        g, logits, seed, scales, dx, T, C, H, K, K - 1 - pad_left, how.G, how.chunk,
        *drop(dropout), *strides(g, logits),
    )  # fmt: skip
    return dx, dlogits


def taps(weight: Tensor) -> Tensor:
    """Weights or logits (B, T, H, K) themselves if the taps of all heads lie side by side."""
    dense = weight.stride(3) == 1 and weight.stride(2) == weight.shape[3]
    return weight if dense else weight.contiguous()


def drop(dropout: float) -> list[np.generic]:
    """DropConnect's threshold for 32 random bits, and its scale."""
    return [np.uint32(dropout * 2**32), np.float64(1 / (1 - dropout))]
