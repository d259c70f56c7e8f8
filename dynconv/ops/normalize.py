"""Normalising a kernel over its K taps (Wu et al. 2019, section 3 and Table 6)."""

from torch import Tensor

KINDS = {"softmax": lambda weight: weight.softmax(dim=-1), "none": lambda weight: weight}


def normalize_kernel(weight: Tensor, kind: str = "softmax") -> Tensor:
    """Normalise (..., K) over the last dimension; "softmax" or "none".

    Raises ValueError for another kind.
    """
    if kind not in KINDS:
        raise ValueError(f"no normalisation {kind!r}: choose one of {', '.join(KINDS)}")
    return KINDS[kind](weight)
