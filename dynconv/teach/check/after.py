"""Checks the exercises on what came after: states that carry the past."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from dynconv.teach.judge import judge

SIZES = {"one word": (1, 1, 2, 3), "two sentences": (2, 7, 3, 4), "many words": (1, 40, 2, 2)}
"""name: B, T, C and N"""


def state_after(mine: Callable[[Tensor, Tensor, Tensor], Tensor]) -> None:
    """mine(x, keep, write) is the state (B, C, N) after x (B, T, C); keep and write are (C, N)."""
    cases = {f"{name}: B, T, C, N = {size}": prompt(*size) for name, size in SIZES.items()}
    judge(mine, final_state, cases, state_faults, gradients=True)
    print(f"right: the states after {len(cases)} prompts, with gradients")


def prompt(B: int, T: int, C: int, N: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return random x, keep between 0.2 and 1, and write."""
    g = torch.Generator().manual_seed(T)
    keep = 0.2 + 0.8 * torch.rand(C, N, generator=g)
    return torch.randn(B, T, C, generator=g), keep, torch.randn(C, N, generator=g)


def final_state(x: Tensor, keep: Tensor, write: Tensor) -> Tensor:
    """Run the recurrence word by word."""
    z = x.new_zeros(len(x), *keep.shape)
    for x_t in x.unbind(1):
        z = keep * z + write * x_t.unsqueeze(-1)
    return z


def state_faults(x: Tensor, keep: Tensor, write: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Yield what common mistakes return."""
    backwards = "the powers run backwards: the last word has not faded, the first one T - 1 times"
    yield backwards, final_state(x.flip(1), keep, write)
    yield "one power too many: the last word has not faded", final_state(x, keep, keep * write)
    ones = torch.ones_like(keep)
    yield "`write` scales each input on its way into the states", final_state(x, keep, ones)
    yield "nothing fades: multiply by powers of `keep`", final_state(x, ones, write)
