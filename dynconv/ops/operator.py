"""Defines an operator by its implementations, and chooses one for impl="auto" or another name.

Implementations are functions in PyTorch or kernels of a `Backend`, in C or CUDA. On a CPU "auto"
prefers the C kernels: they were the fastest at nearly every shape in data/results/bench-ops.json.
(The exception is LightConv and depthwise convolution of short sentences, where PyTorch's
channels-last convolution is up to a third faster forward, and a tenth with backward.) On a GPU it
uses the CUDA kernels only on architectures where their tests have passed.

Without kernels, the rules of an operator choose among its PyTorch functions by the number of
positions T and of taps K. They come from measurements on a CPU with one thread, at B = 10,
C = 1,024, H = 16, K in (3, 31), T in (10, 100, 1,000), and at B = 100, T = 32, C = 512, H = 4.
"""

import sys
from collections.abc import Callable
from typing import NamedTuple, Protocol

from torch import Tensor

from dynconv.errors import name_hint
from dynconv.kernels import is_transformed
from dynconv.kernels.cpu import build as cpu
from dynconv.kernels.cuda import build as cuda


class Backend(Protocol):
    """What a module of compiled kernels must offer to be chosen from."""

    def why_unavailable(self) -> str | None:
        """Return why no kernel can run on this machine, or None if they can."""

    def supports(self, x: Tensor) -> bool:
        """Return whether kernels can run on x: on its device, in its dtype, on this machine."""

    def why_unsupported(self, x: Tensor) -> str:
        """Return why `supports` is false, and what the user can do."""

    def is_trusted_on(self, x: Tensor) -> bool:
        """Return whether the kernels are known to be right on the device of x."""


BACKENDS: dict[str, Backend] = {"cpu": cpu, "cuda": cuda}
"""backends, keyed by the names that `impl` takes, in the order in which "auto" tries them"""


class Rule(NamedTuple):
    """A rule that allows `impl` for min_T <= T <= max_T positions and up to max_K taps."""

    impl: str
    min_T: int = 0
    max_T: int = sys.maxsize
    max_K: int = sys.maxsize

    def allows(self, T: int, K: int) -> bool:
        return self.min_T <= T <= self.max_T and K <= self.max_K

    def __str__(self) -> str:
        limits = {"K <=": self.max_K, "T >=": self.min_T, "T <=": self.max_T}
        given = [f"{words} {n}" for words, n in limits.items() if n not in (0, sys.maxsize)]
        return f"{self.impl} if {' and '.join(given)}" if given else self.impl


class Operator(NamedTuple):
    """An operator: the ways to compute it, and the rules by which "auto" chooses among them."""

    name: str
    """the name of its function in `dynconv.ops`"""
    implementations: dict[str, Callable[..., Tensor]]
    """the functions that compute it, keyed by the names that `impl` takes"""
    rules: tuple[Rule, ...]
    """choices without kernels: "auto" takes the first that allows T and K"""
    transformable_impl: str | None = None
    """the implementation that "auto" takes inside torch.func and in forward mode, where kernels and
    hand-written gradients cannot be differentiated; None if every rule's choice can be"""

    def choose(
        self, impl: str, x: Tensor, T: int, K: int = 1, *, kernels: bool = True
    ) -> Callable[..., Tensor]:
        """Return the implementation that `impl` names, for T positions and K taps (1 without taps).

        x        an input: kernels need to know its device and dtype
        kernels  whether "auto" may choose kernels

        Raises ValueError for an unknown name and for kernels that cannot run on x, and
        NotImplementedError for kernels inside transforms of torch.func and in forward mode.
        """
        if impl == "auto":
            impl = self.choose_auto(x, T, K, kernels)
        if not isinstance(impl, str) or impl not in self.implementations:
            hint = name_hint(str(impl), ["auto", *self.implementations], "choose one of")
            raise ValueError(f"{self.name} has no implementation {impl!r}: {hint}")
        if impl in BACKENDS and not BACKENDS[impl].supports(x):
            raise ValueError(f"impl={impl!r} cannot run: {BACKENDS[impl].why_unsupported(x)}")
        if impl in BACKENDS and is_transformed():
            raise NotImplementedError(
                f"impl={impl!r} of {self.name} runs neither inside torch.func's vmap, grad and such"
                f" nor in forward mode: use impl='auto' or {self.transformable_impl!r} there"
            )
        return self.implementations[impl]

    def choose_auto(self, x: Tensor, T: int, K: int, kernels: bool = True) -> str:
        """Return the name of the implementation that "auto" stands for."""
        if self.transformable_impl and is_transformed():
            return self.transformable_impl
        for name, backend in BACKENDS.items() if kernels else ():
            if name in self.implementations and backend.supports(x) and backend.is_trusted_on(x):
                return name
        return next(rule.impl for rule in self.rules if rule.allows(T, K))
