"""The checks at the operators' door."""

from collections.abc import Callable

from torch import Tensor


def require_heads(heads: int, channels: int) -> None:
    """Raise unless `heads` divides `channels`."""
    if heads < 1 or channels % heads:
        raise ValueError(f"{heads} heads do not divide {channels} channels")


def require_pad_left(pad_left: int, kernel_size: int) -> None:
    """Raise unless 0 <= pad_left <= K - 1."""
    if not 0 <= pad_left < kernel_size:
        raise ValueError(f"pad_left {pad_left} lies outside [0, {kernel_size - 1}] (K - 1)")


def choose(implementations: dict[str, Callable[..., Tensor]], impl: str) -> Callable[..., Tensor]:
    """The implementation of that name; ValueError lists the names."""
    if impl not in implementations:
        names = ", ".join(["auto", *implementations])
        raise ValueError(f"no implementation {impl!r} here: choose one of {names}")
    return implementations[impl]
