"""Checks the exercise on mixing matrices."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from dynconv import ops
from dynconv.teach.judge import FLOAT32, Wrong, describe_type, judge
from dynconv.teach.mixing import mixing_matrix as reference


def mixing_matrix(mine: Callable[[Callable[[Tensor], Tensor], int], Tensor]) -> None:
    """mine(mix, T) is the matrix (T, T) of a linear mixer of (1, T, 1): rows are outputs."""
    draw = partial(torch.randn, generator=torch.Generator().manual_seed(0))
    kernels = draw(1, 6, 1, 3).softmax(dim=-1)
    mixers: dict[str, tuple[Callable[[Tensor], Tensor], int]] = {
        "a mixer that returns its input": (lambda z: z, 3),
        "the word before": (lambda z: z.roll(1, dims=1) * (torch.arange(4) > 0)[:, None], 4),
        "a convolution": (partial(ops.depthwise_conv, weight=draw(1, 5), pad_left=4), 7),
        "a DynamicConv": (partial(ops.dynamic_conv, weight=kernels, pad_left=1), 6),
        "the averaging mixer": (ops.cumulative_mean, 5),
        "a sequence of one position": (lambda z: 2 * z, 1),
    }
    cases = {name: (partial(one_sequence, mix, T), T) for name, (mix, T) in mixers.items()}
    transposed = "this is the transpose: an impulse at s fills column s"
    faults = {transposed: lambda mix, T: reference(mix, T).T}
    judge(mine, reference, cases, faults, tolerance=FLOAT32)
    print(f"right: the matrices of {len(cases)} mixers agree")


def one_sequence(mix: Callable[[Tensor], Tensor], T: int, z: Tensor) -> Tensor:
    """Return a copy of mix(z); refuse any shape but (1, T, 1)."""
    if not isinstance(z, Tensor) or z.shape != (1, T, 1):
        got = tuple(z.shape) if isinstance(z, Tensor) else describe_type(z)
        raise Wrong(f"the mixer takes (1, {T}, 1), not {got}")
    return mix(z.float()).clone()
