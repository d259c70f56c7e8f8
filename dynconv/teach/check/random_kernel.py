"""The check of the exercise on DropConnect in a CUDA kernel: are the draws random enough?"""

from collections.abc import Callable

import numpy as np

from dynconv.teach.check.kernels import compiled
from dynconv.teach.judge import Wrong

CODE = """
__global__ void factors(unsigned long long seed, unsigned long long first,
                        unsigned long long stride, int each, float p, int n, float* out) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n)
    for (int k = 0; k < each; ++k) out[i * each + k] = factor(seed, first + i * stride + k, p);
}
"""
COUNT = 2**16
"""factors of a launch, where nothing else is said"""
SIGMAS = 5
"""how far a share may be from the expected one, in standard deviations"""
SEEDS = 0, 1, 2, 3, 2**63 - 1
WORD = 64
"""draws in a row that say whether two places of two masks are the same"""
WORDS = 2**13
"""words of a mask that are looked at: its square, times WORD, is 2**32"""


def dropconnect_kernel(source: str) -> None:
    """source is CUDA C++ with a function

        __device__ float factor(unsigned long long seed, unsigned long long i, float p)

    of the weight number i: 0 with probability p, else 1 / (1 - p); it depends on nothing else.
    """
    launch = compiled(source, "factors", after=CODE)

    def draw(seed, first=0, p=0.25, n=COUNT, block=256, stride=1, each=1):
        """Return factors of the weights first + i * stride + k, for i < n and k < each."""
        out = np.full(n * each, np.nan, np.float32)
        places = np.uint64(seed), np.uint64(first), np.uint64(stride), np.int32(each)
        rest = np.float32(p), np.int32(n), np.uint64(out.ctypes.data)
        launch((-(-n // block),), (block,), [*places, *rest])
        return out

    for p in (0.0, 0.1, 0.25, 0.5):
        check_values(draw(1, p=p), p)
    whole = draw(1)
    if not np.array_equal(draw(1), whole):
        raise Wrong(
            "a second call draws another mask: the backward pass would not find the first again"
        )
    if not np.array_equal(draw(1, first=1000, n=5000, block=96), whole[1000:6000]):
        raise Wrong(
            "another launch draws another factor for the same weight: it must depend on i, not on "
            "the thread or the block"
        )
    masks = {seed: draw(seed) for seed in SEEDS}
    for seed, mask in masks.items():
        check_values(mask, 0.25, f"seed {seed}: ")
    next_seed, next_weight = draw(1 + 2**32), draw(1, first=2**32)
    swapped = masks[2].reshape(-1, 2)[:, ::-1].ravel()
    pairs = {
        "seeds 1 and 2": (masks[1], masks[2]),
        "seeds 0 and 2^63 - 1": (masks[0], masks[2**63 - 1]),
        "seeds 2^32 apart": (whole, next_seed),
        "weights 2^32 apart": (whole, next_weight),
        "weight i of seed 3 and weight i + 1 of seed 2": (masks[3][:-1], masks[2][1:]),
        "weight i of seed 3 and weight i ^ 1 of seed 2": (masks[3], swapped),
        "weight i of seed 1 + 2^32 and weight i + 2^32 of seed 1": (next_seed, next_weight),
    }
    for apart in (1, 2, 7, 31, 1024):
        pairs[f"weights {apart} apart"] = whole[apart:], whole[:-apart]
    for which, (a, b) in pairs.items():  # first, as it says more
        if np.array_equal(a, b):
            raise Wrong(f"{which} have the same draws")
    for which, (a, b) in pairs.items():
        check_share((a == 0) & (b == 0), 0.25**2, f"{which} are not independent: both are 0 at")
    for name, seed in (("2", 2), ("1 + 2^32", 1 + 2**32)):
        if where := same_elsewhere(draw, 1, seed):
            raise Wrong(
                f"seeds 1 and {name} have one mask in another order: weight i of seed 1 and weight "
                f"{where} of seed {name} have the same draws"
            )
    print(f"right: values, shares and independence of {COUNT:,} weights, {len(SEEDS)} seeds")


def check_values(mask: np.ndarray, p: float, where: str = "") -> None:
    """Raise `Wrong` unless factors are 0 or 1 / (1 - p), and the share p of them 0."""
    kept = 1 / (1 - p)
    strange = np.flatnonzero(~(np.isclose(mask, kept, rtol=1e-6, atol=0) | (mask == 0)))  # NaN, too
    if len(strange):
        i = strange[0]
        raise Wrong(f"{where}p = {p}: factor {i} is {mask[i]:.4g}, and should be 0 or {kept:.4g}")
    check_share(mask == 0, p, f"{where}p = {p}: dropped are")


def check_share(marked: np.ndarray, expected: float, text: str) -> None:
    """Raise `Wrong` if the share of marked places is too far from the expected one."""
    share, sigma = marked.mean(), (expected * (1 - expected) / len(marked)) ** 0.5
    if abs(share - expected) > SIGMAS * sigma:
        raise Wrong(f"{text} {share:.1%} of the weights, not {expected:.1%}")


def same_elsewhere(draw: Callable, one: int, two: int) -> str | None:
    """Return where the first 2**32 weights of seed two have the draws of weight i of seed one.

    i + d or i ^ d with one number d, or None. Of seed one, all words at the beginning; of seed
    two, a word in each stretch as long as that: one of these is one of those.
    """
    long = WORD * WORDS
    begin = draw(one, p=0.5, n=WORDS + 1, stride=WORD, each=WORD) == 0
    words = packed(draw(two, p=0.5, n=WORDS, stride=long, each=WORD) == 0)
    places = np.arange(WORD)
    for shift in range(WORD):
        for sign, moved in (
            ("+", begin[shift : shift + long]),
            ("^", begin[:long].reshape(-1, WORD)[:, places ^ shift]),
        ):
            _, here, there = np.intersect1d(packed(moved), words, return_indices=True)
            if len(here) == 1:
                i, j = here.item() * WORD + shift, there.item() * long
                return f"i ^ {i ^ j}" if sign == "^" else f"i + {j - i}".replace("+ -", "- ")
    return None


def packed(draws: np.ndarray) -> np.ndarray:
    """Return one number for each WORD of them."""
    return np.packbits(draws.ravel()).view(np.uint64)
