"""Checks the random numbers of a CUDA kernel with DropConnect."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from dynconv.teach.check.convolutions import check_factors, check_share
from dynconv.teach.check.simulated import compile_answer
from dynconv.teach.judge import Wrong, labelled

CODE = """
__global__ void factors(unsigned long long seed, unsigned long long first,
                        unsigned long long stride, int each, float p, int n, float* out) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n)
    for (int k = 0; k < each; ++k) out[i * each + k] = factor(seed, first + i * stride + k, p);
}
"""
COUNT = 2**16
"""factors of a launch, unless it asks for another number"""
SEEDS = 0, 1, 2, 3, 2**63 - 1
WORD = 64
"""draws in a row that show whether two places of two masks are the same"""
WORDS = 2**13
"""words of a mask that are compared: WORDS**2 * WORD is 2**32"""


def dropconnect_kernel(source: str) -> None:
    """Check that `source` is CUDA C++ with a function

        __device__ float factor(unsigned long long seed, unsigned long long i, float p)

    which returns 0 with probability p, else 1 / (1 - p), and depends only on its arguments.
    """
    launch = compile_answer(source, "factors", after=CODE)

    def draw(seed, first=0, p=0.25, n=COUNT, block=256, stride=1, each=1):
        """Return the factors of the weights first + i * stride + k, for i < n and k < each."""
        out = torch.full((n * each,), torch.nan)
        places = np.uint64(seed), np.uint64(first), np.uint64(stride), np.int32(each)
        rest = np.float32(p), np.int32(n), np.uint64(out.data_ptr())
        launch((-(-n // block),), (block,), [*places, *rest])
        return out

    for seed, p in [(1, 0.0), (1, 0.1), (1, 0.5), *((seed, 0.25) for seed in SEEDS)]:
        with labelled(f"seed {seed}, p = {p}"):
            mask = draw(seed, p=p)
            check_factors(mask, p)
            check_share(mask == 0, p, "dropped are")
    masks = {seed: draw(seed) for seed in SEEDS}
    whole = masks[1]
    if not torch.equal(draw(1), whole):
        raise Wrong(
            "a second call draws another mask: the backward pass would not find the first again"
        )
    if not torch.equal(draw(1, first=1000, n=5000, block=96), whole[1000:6000]):
        raise Wrong(
            "another launch draws another factor for the same weight: it must depend on i, not on "
            "the thread or the block"
        )
    next_seed, next_weight = draw(1 + 2**32), draw(1, first=2**32)
    swapped = masks[2].view(-1, 2).flip(1).flatten()
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
    for which, (a, b) in pairs.items():  # first, because this says more
        if torch.equal(a, b):
            raise Wrong(f"{which} have the same draws")
    for which, (a, b) in pairs.items():
        check_share((a == 0) & (b == 0), 0.25**2, f"{which} are not independent: both are 0 in")
    for name, seed in (("2", 2), ("1 + 2^32", 1 + 2**32)):
        if where := same_elsewhere(draw, 1, seed):
            raise Wrong(
                f"seeds 1 and {name} have one mask in another order: weight i of seed 1 and weight "
                f"{where} of seed {name} have the same draws"
            )
    print(f"right: values, shares and independence of {COUNT:,} weights, {len(SEEDS)} seeds")


def same_elsewhere(draw: Callable, one: int, two: int) -> str | None:
    """Return "i + d" or "i ^ d", the weight that seed two gives the draw of weight i of seed one.

    Return None if no d below 2**32 fits. It compares all words at the beginning of seed one with a
    word of seed two in each stretch as long as that beginning: if a d fits, two of them are equal.
    """
    long = WORD * WORDS
    begin = draw(one, p=0.5, n=WORDS + 1, stride=WORD, each=WORD) == 0
    words = pack_bits(draw(two, p=0.5, n=WORDS, stride=long, each=WORD) == 0)
    places = torch.arange(WORD)
    for shift in range(WORD):
        for sign, moved in (
            ("+", begin[shift : shift + long]),
            ("^", begin[:long].view(-1, WORD)[:, places ^ shift]),
        ):
            _, here, there = np.intersect1d(pack_bits(moved), words, return_indices=True)
            if len(here) == 1:
                i, j = here.item() * WORD + shift, there.item() * long
                return f"i ^ {i ^ j}" if sign == "^" else f"i + {j - i}".replace("+ -", "- ")
    return None


def pack_bits(draws: Tensor) -> np.ndarray:
    """Pack each WORD bools into one integer."""
    return np.packbits(draws.flatten().numpy()).view(np.uint64)
