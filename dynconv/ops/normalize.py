"""Normalises a kernel over its K taps, in the ten ways of Wu et al. 2019, Table 6.

    softmax   softmax(w)              non-negative, sums to 1
    none      w
    sigmoid   1 / (1 + exp(-w))       each tap in (0, 1)
    tanh      tanh(w)                 each tap in (-1, 1)
    l1        w / (||w||_1 + eps)
    l2        w / (||w||_2 + eps)
    power2    w^2
    abs       |w|
    abs_l1    |w| / (||w||_1 + eps)   non-negative, sums to 1
    abs_l2    |w| / (||w||_2 + eps)

eps = 1e-6, or 6e-5 in float16, keeps a kernel of zeros at zero.
The softmax is equation (7.1) of the book.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from dynconv.choices import Normalization
from dynconv.errors import name_hint
from dynconv.ops.checks import check_floating


def norm_plus_eps(w: Tensor, order: int) -> Tensor:
    """Return ||w|| + eps over the last dimension, as (..., 1)."""
    # The gradient at w = 0 is 1 / eps. In float16, 1 / 1e-6 would overflow, so eps is 6e-5.
    eps = max(1e-6, torch.finfo(w.dtype).tiny)
    return torch.linalg.vector_norm(w, order, dim=-1, keepdim=True) + eps


NORMALIZATIONS: dict[Normalization, Callable[[Tensor], Tensor]] = {
    "softmax": lambda w: w.softmax(dim=-1),
    "none": lambda w: w,
    "sigmoid": lambda w: w.sigmoid(),
    "tanh": lambda w: w.tanh(),
    "l1": lambda w: w / norm_plus_eps(w, 1),
    "l2": lambda w: w / norm_plus_eps(w, 2),
    "power2": lambda w: w.square(),
    "abs": lambda w: w.abs(),
    "abs_l1": lambda w: w.abs() / norm_plus_eps(w, 1),
    "abs_l2": lambda w: w.abs() / norm_plus_eps(w, 2),
}


def check_normalization(kind: str) -> None:
    """Raise ValueError unless `kind` is a row of the table above."""
    if kind not in NORMALIZATIONS:
        hint = name_hint(str(kind), NORMALIZATIONS, "choose one of")
        raise ValueError(f"no normalisation {kind!r}: {hint}")


def normalize_kernel(weight: Tensor, kind: Normalization = "softmax") -> Tensor:
    """Normalise (..., K) over the last dimension, in one of the ten ways of Wu et al., Table 6.

    The result has the shape and dtype of weight. Raises ValueError for an unknown kind, TypeError
    for integer or complex weights.
    """
    check_normalization(kind)
    check_floating("weight", weight)
    return NORMALIZATIONS[kind](weight)
