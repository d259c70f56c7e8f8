"""Chooses the implementation for impl="auto". Only decoding steps are chosen in ops/step.py.

On a CPU the native kernels run wherever they can: they are the fastest at every shape measured
(data/results/bench-ops.json), except for LightConv and depthwise convolution on short sentences,
where PyTorch's channels-last convolution is up to a third faster forward, or a tenth with backward.

On a GPU the CUDA kernels run only on architectures where their tests have passed
(`tested_architectures`). impl="cuda" runs them on any.

The rules choose among the PyTorch implementations, by the number of positions T and of taps K. They
were measured on a CPU with one thread, B = 10, C = 1,024, H = 16, K in (3, 31), T in (10, 100,
1,000) and at B = 100, T = 32, C = 512, H = 4.
"""

import sys
from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor

from dynconv.kernels.cpu import build as native
from dynconv.kernels.cuda import build as cuda

KERNELS = {"native": native, "cuda": cuda}  # each with missing(), runs(x) and obstacle(x)


class Rule(NamedTuple):
    """Chooses `impl` for T positions and K taps within these limits, themselves included."""

    impl: str
    min_T: int = 1
    max_T: int = sys.maxsize
    max_K: int = sys.maxsize

    def holds(self, T: int, K: int) -> bool:
        return self.min_T <= T <= self.max_T and K <= self.max_K

    def __str__(self) -> str:
        limits = {"K <=": self.max_K, "T >=": self.min_T, "T <=": self.max_T}
        given = [f"{words} {n}" for words, n in limits.items() if n not in (1, sys.maxsize)]
        return f"{self.impl} if {' and '.join(given)}" if given else self.impl


RULES: dict[str, tuple[Rule, ...]] = {
    "depthwise_conv": (Rule("channels_last"),),
    "light_conv": (Rule("band", max_T=10), Rule("channels_last")),
    "dynamic_conv": (Rule("taps", max_K=3, min_T=11), Rule("band", max_T=64), Rule("blocked")),
    "dynamic_conv_softmax": (Rule("separate"),),
    "talk_conv": (Rule("window", max_T=10), Rule("blocked")),
    "cumulative_mean": (Rule("blocked"),),
}

Implementations = dict[str, Callable[..., Tensor]]
"""the functions that compute an operator, by the names that `impl` takes"""


def choose(
    operator: str, implementations: Implementations, impl: str, x: Tensor, K: int
) -> Callable[..., Tensor]:
    """Return the implementation that `impl` names, for x (B, T, C) and K taps.

    Raises ValueError for an unknown name, with the known ones, and for kernels that cannot run
    here, with the reason and the remedy.
    """
    if impl == "auto":
        impl = automatic(operator, implementations, x, K)
    if impl not in implementations:
        names = ", ".join(["auto", *implementations])
        raise ValueError(f"no implementation {impl!r} here: choose one of {names}")
    if impl in KERNELS and not KERNELS[impl].runs(x):
        raise ValueError(f"impl={impl!r} cannot run: {KERNELS[impl].obstacle(x)}")
    return implementations[impl]


def automatic(operator: str, implementations: Implementations, x: Tensor, K: int) -> str:
    """Return the name of the implementation that "auto" stands for."""
    if "native" in implementations and native.runs(x):
        return "native"
    if "cuda" in implementations and cuda.runs(x) and cuda.verified(x):
        return "cuda"
    return next(rule.impl for rule in RULES[operator] if rule.holds(x.shape[1], K))
