"""The check of the exercise on DropConnect."""

from collections.abc import Callable
from itertools import combinations
from math import prod

import torch
from torch import Tensor

SIZES = {"B": 4, "T": 25, "H": 6, "K": 9}
NAMES = {"B": "sentences", "T": "positions", "H": "heads", "K": "taps"}


def dropconnect_mask(mine: Callable[..., Tensor]) -> None:
    """mine(own, p, B, T, H, K) is a mask (B, T, H, K): 0 with probability p, else 1 / (1 - p).

    Entries that differ in an axis of `own`, letters of "BTHK", have draws of their own; entries
    that differ in other axes only share one.
    """
    axes = list(SIZES)
    laws = ["".join(c) for n in range(5) for c in combinations(axes, n)]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        for own in laws:
            for p in (0.0, 0.2):
                try:
                    _check(mine(own, p, **SIZES), mine(own, p, **SIZES), own, p)
                except AssertionError as error:
                    raise AssertionError(f"own = {own!r}, p = {p}: {error}") from None
    print(f"right: {len(laws)} laws, with p = 0 and p = 0.2")


def _check(mask: Tensor, again: Tensor, own: str, p: float) -> None:
    shape = tuple(SIZES.values())
    if not isinstance(mask, Tensor) or not mask.is_floating_point():
        got = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
        raise AssertionError(f"the mask is {got}, not a tensor of floating numbers")
    if tuple(mask.shape) != shape:
        raise AssertionError(f"the mask has shape {tuple(mask.shape)}, not {shape}")
    kept = 1 / (1 - p)
    strange = mask[(mask != 0) & ~((mask - kept).abs() < 1e-6)]  # NaN is strange too
    if len(strange):
        raise AssertionError(f"an entry is {strange[0]:.4g}, and should be 0 or {kept:.4g}")
    n = prod(SIZES[letter] for letter in own)
    draws = mask
    for axis, letter in enumerate(SIZES):
        first = draws.narrow(axis, 0, 1)
        shared = torch.equal(draws, first.expand_as(draws))
        if letter not in own and not shared:
            raise AssertionError(f"{NAMES[letter]} should share their draws, and do not")
        if letter in own and p and shared and n > 50:  # a few draws may agree by chance
            raise AssertionError(f"{NAMES[letter]} share their draws, and should not")
        draws = draws if letter in own else first
    share = (draws == 0).double().mean().item()
    if abs(share - p) > 5 * (p * (1 - p) / n) ** 0.5:
        raise AssertionError(f"{share:.0%} of {n} draws are 0, and should be {p:.0%}")
    if p and n > 50 and torch.equal(mask, again):
        raise AssertionError("the second call drops the same entries as the first")
