"""Whether a reader's function leaves its inputs alone."""

from collections.abc import Sequence

import torch
from torch import Tensor

Input = Tensor | Sequence[Tensor] | None


def left_alone(names: Sequence[str], given: Sequence[Input], before: Sequence[Input]) -> None:
    """AssertionError that names the first of the inputs that is not as it was before."""
    for name, now, then in zip(names, given, before, strict=False):
        if not _equal(now, then):
            raise AssertionError(f"it changes `{name}` in place: work on a copy")


def _equal(now: Input, then: Input) -> bool:
    if now is None or isinstance(now, Tensor):
        return now is then or torch.equal(now, then)
    return len(now) == len(then) and all(map(torch.equal, now, then))
