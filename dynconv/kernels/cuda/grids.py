"""Chooses grids, blocks and shared memory for each kind of kernel.

Sizes: x is (B, T, C); heads H, taps K, channels per head R = C / H.
"""

from collections.abc import Sequence

import torch

from dynconv.dtypes import accumulator_dtype
from dynconv.kernels.cuda.plan import CUDA_TYPES, VECTOR_BYTES, ArraySpec, Launch, constant_of

SHARED_BYTES = 48 * 1024
"""bytes of shared memory that a block may use on every GPU"""
BLOCKS_PER_GPU = 264
"""blocks that fill a GPU: two for each multiprocessor of an H100"""
WALKS_PER_GPU = 2048
"""walks along the time axis that keep every warp of a GPU busy"""
MIN_TENSOR_CORE_ARCHITECTURE = 80
"""the first architecture that multiplies matrices of bfloat16, sm_80"""
TILE = constant_of("window.cuh", "TILE")
"""positions of a warp's tile"""
BAND = constant_of("band.cuh", "BAND")
"""positions of a tile for tensor cores"""
STEPS = constant_of("talk.cu", "STEPS")
"""positions of an unrolled loop of TaLK, and the fewest rows of its ring"""
SPAN = constant_of("talk.cu", "SPAN")
"""positions whose windows a warp of TaLK computes together"""


def vector_width(R: int, maximum: int, *arrays: ArraySpec) -> int:
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


def elements_per_load(x: ArraySpec) -> int:
    """Return how many elements of x's accumulator dtype one load takes: QUAD in taps.cuh."""
    return VECTOR_BYTES // accumulator_dtype(x.dtype).itemsize


def beyond_taps(x: ArraySpec) -> int:
    """Return how many elements of shared memory a head needs in addition to TILE per tap.

    K taps of TILE positions meet K + TILE - 1 rows of x: see row_index in taps.cuh.
    """
    return TILE * TILE + elements_per_load(x)


def walk_length(tiles: int, limit: int) -> int:
    """Return how many tiles each warp takes, few enough to keep every warp of a GPU busy."""
    return min(limit, max(1, tiles // WALKS_PER_GPU))


class Grid:
    """The grid of a kernel that loads V channels of x at once.

    cuda_type  the name of x's dtype in CUDA
    sizes      blocks, block and shared bytes of the Launch
    """

    def __init__(self, x: ArraySpec, V: int, blocks: int, block: tuple[int, int], shared: int = 0):
        self.cuda_type, self.V, self.sizes = CUDA_TYPES[x.dtype], V, (blocks, block, shared)

    def make_launch(
        self, source: str, name: str, arguments: tuple, *template: int | bool
    ) -> Launch:
        """Return a launch of a kernel whose template begins with cuda_type and V."""
        return Launch(source, name, (self.cuda_type, self.V, *template), *self.sizes, arguments)


class WarpGrid(Grid):
    """The grid of a kernel whose warps each process a tile, or a walk of tiles, of 32 / G heads.

    G      lanes that share a head
    chunk  taps in shared memory at a time, a multiple of TILE
    """

    def __init__(self, arrays: Sequence[ArraySpec], H: int, K: int, *, per_head: int,
                 per_tap: int = TILE, max_warps: int = 4, extra_positions: int = 0,
                 walks: int | None = None):  # fmt: skip
        """Choose the sizes of the grid.

        arrays           x or g or both, which are read V channels at a time
        per_tap          elements of x's accumulator that each tap of a head takes in shared memory
        per_head         further elements per head, whatever the number of taps
        max_warps        the most warps of a block
        extra_positions  positions per sentence beyond its T
        walks            the number of walks over all sentences, if warps do not take single tiles
        """
        x = arrays[0]
        B, T, C = x.shape
        V = vector_width(C // H, 4, *arrays)
        self.G = lanes_per_head(C // H, V)
        heads = 32 // self.G
        # Bytes of one element in every head of a warp.
        element_bytes = heads * accumulator_dtype(x.dtype).itemsize
        fit = (SHARED_BYTES // element_bytes - per_head) // (per_tap * TILE)
        self.chunk = min(-(-K // TILE), fit) * TILE
        shared = element_bytes * (self.chunk * per_tap + per_head)
        # A block takes tiles of one sentence, or walks, which are over all sentences.
        if walks is None:
            sentences, count = B, -(-(T + extra_positions) // TILE)
        else:
            sentences, count = 1, walks
        groups = -(-H // heads)

        def blocks(n: int) -> int:
            """Return the number of blocks of n warps."""
            return sentences * -(-count // n) * groups

        # Warps of a block share rows in the cache, but every multiprocessor should get a block.
        n = max(1, min(max_warps, count, SHARED_BYTES // shared))
        while n > 1 and blocks(n) < BLOCKS_PER_GPU:
            n //= 2
        super().__init__(x, V, blocks(n), (32, n), n * shared)


class BandGrid(Grid):
    """The grid of a kernel for tensor cores, whose warps each walk along tiles of BAND positions.

    D      blocks of BAND rows of x that a tile meets
    walk   tiles of a warp
    walks  number of walks over the batch, per group of channels
    """

    def __init__(self, x: ArraySpec, V: int, K: int, channels: int, band_dtype: torch.dtype):
        """Choose the sizes of the grid.

        channels    number of channels that a warp processes
        band_dtype  the dtype of its band in shared memory
        """
        B, T, C = x.shape
        self.D = -(-K // BAND) + 1
        tiles, columns = -(-T // BAND), C // channels
        self.walk = walk_length(B * tiles * columns, 8)  # long walks load fewer rows twice
        walks, n = -(-tiles // self.walk), 4
        self.walks = B * walks
        while n > 1 and (n > walks or B * -(-walks // n) * columns < BLOCKS_PER_GPU):
            n //= 2
        shared = n * BAND * (BAND * self.D + 8) * band_dtype.itemsize  # PITCH in band.cuh
        super().__init__(x, V, B * -(-walks // n) * columns, (32, n), shared)


def tensor_core_grid(
    H: int, K: int, *arrays: ArraySpec, whole_heads: bool = False
) -> BandGrid | None:
    """Return how to launch tensor cores on x, or on g and x, or None for the other kernels.

    A warp takes 8 V channels, or with `whole_heads` all channels of a head.

    Tensor cores are used in half precision on sm_80 or later, for 8 to 64 taps and heads with a
    multiple of 32 channels, if a lane can load 4 or 8 of them at once. With fewer taps tensor cores
    would take more instructions; with more, they would need more registers than there are.
    """
    x = arrays[0]
    R = x.shape[2] // H
    V = vector_width(R // 8, 8, *arrays) if R % 8 == 0 else 1
    half = (
        x.dtype in (torch.float16, torch.bfloat16)
        and x.architecture >= MIN_TENSOR_CORE_ARCHITECTURE
    )
    if not (half and V >= 4 and TILE <= K <= 4 * BAND):
        return None
    # In shared memory is a band of x's dtype, or of sums for the weights' gradient.
    band_dtype = x.dtype if len(arrays) == 1 else torch.float32
    return BandGrid(x, V, K, R if whole_heads else 8 * V, band_dtype)


class ColumnGrid(Grid):
    """The grid of TaLK's kernels, whose warps each walk 32 V channels of a stretch.

    V        channels of a lane, whose sums take 16 bytes; fewer if that makes the windows fit
    width    C as a constant for the compiler, if all tokens are C numbers apart; otherwise 0
    ring     rows of sums in shared memory, a power of two: enough for the widest window, if it fits
    stretch  positions per warp
    """

    def __init__(self, R: int, H: int, max_left: int, max_right: int, *arrays: ArraySpec):
        x = arrays[0]
        B, T, C = x.shape
        sum_bytes = accumulator_dtype(x.dtype).itemsize
        widest = max(STEPS, power_of_two(max_left + max_right + 2))

        def rows(V: int) -> tuple[int, int]:
            """Return how many rows fit, and the bytes of the windows.

            The number is a power of two, and there is room for one more row.
            """
            windows = min(H, -(-32 * V // R) + 1) * (SPAN + 1) * 4 * sum_bytes
            return power_of_two((SHARED_BYTES - windows) // (32 * V * sum_bytes)) // 2, windows

        V = vector_width(R, elements_per_load(x), *arrays)
        while V > 1 and rows(V)[0] < widest:
            V //= 2
        fit, windows = rows(V)
        self.ring = min(widest, fit)
        shared = (self.ring + 1) * 32 * V * sum_bytes + windows
        # A kernel for each width that models have; all others share one.
        self.width = C if C % 128 == 0 and all(z.strides[1] == C for z in arrays) else 0
        across = B * -(-C // (32 * V))
        # Short stretches load more of their neighbours' tokens, but long ones leave the GPU idle.
        self.stretch = 128 if across * -(-T // 128) >= BLOCKS_PER_GPU else 32
        super().__init__(x, V, across * -(-T // self.stretch), (32, 1), shared)
