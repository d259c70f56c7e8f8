"""Check of the exercise on the encoder's gradient."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from dynconv.teach.compare import compare


def scaled_gradient(mine: Callable[[Tensor, float], Tensor]) -> None:
    """mine(z, share) is z, with `share` of the gradient; what uses z itself keeps its own."""
    z = torch.randn(2, 5, 6, generator=torch.Generator().manual_seed(0))
    for share in (1 / 2, 1 / 5):
        for beside in (False, True):
            both = (partial(_use, f, share, beside) for f in (mine, _scaled))
            try:
                compare(*both, z)
            except AssertionError as error:
                case = f"share = {share}{', and z also used without you' * beside}"
                raise AssertionError(f"{case}: {error}") from None
    print("right: z stays as it is, its gradient is 1/2 and 1/5")


def _scaled(z: Tensor, share: float) -> Tensor:
    return torch.lerp(z.detach(), z, share)


def _use(f: Callable[[Tensor, float], Tensor], share: float, beside: bool, z: Tensor) -> Tensor:
    z = z.clone()  # no leaf, as the output of an encoder is none
    out = f(z, share)
    return torch.cat([out, z]) if beside else out
