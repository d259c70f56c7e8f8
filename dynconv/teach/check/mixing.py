"""The check of the exercise on the mixing matrix."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from dynconv import ops
from dynconv.teach.mixing import mixing_matrix as reference


def cases() -> dict[str, tuple[Callable[[Tensor], Tensor], int]]:
    """For each name a mixer of (1, T, 1), and T."""
    draw = partial(torch.randn, generator=torch.Generator().manual_seed(0))
    kernels = draw(1, 6, 1, 3).softmax(dim=-1)
    return {
        "a mixer that returns its input": (lambda z: z, 3),
        "the word before": (lambda z: z.roll(1, dims=1) * (torch.arange(4) > 0)[:, None], 4),
        "a convolution": (partial(ops.depthwise_conv, weight=draw(1, 5), pad_left=4), 7),
        "a DynamicConv": (partial(ops.dynamic_conv, weight=kernels, pad_left=1), 6),
        "the averaging mixer": (ops.cumulative_mean, 5),
        "a sequence of one position": (lambda z: 2 * z, 1),
    }


def one_sequence(name: str, mix: Callable[[Tensor], Tensor], T: int, z: Tensor) -> Tensor:
    if not isinstance(z, Tensor) or z.shape != (1, T, 1):
        got = tuple(z.shape) if isinstance(z, Tensor) else type(z).__name__
        raise AssertionError(f"{name}: the mixer wants (1, {T}, 1), not {got}")
    return mix(z.float()).clone()  # whatever becomes of z


def mixing_matrix(mine: Callable[[Callable[[Tensor], Tensor], int], Tensor]) -> None:
    """mine(mix, T) is the matrix (T, T) of a linear mixer of (1, T, 1): rows are outputs."""
    for name, (mix, T) in cases().items():
        M, right = mine(partial(one_sequence, name, mix, T), T), reference(mix, T)
        if not isinstance(M, Tensor) or M.shape != right.shape:
            got = tuple(M.shape) if isinstance(M, Tensor) else type(M).__name__
            raise AssertionError(f"{name}: the matrix is {got}, not {tuple(right.shape)}")
        wrong = ~torch.isclose(M.float(), right, atol=1e-6)
        if wrong.any():
            t, s = wrong.nonzero()[0].tolist()
            numbers = f"mine {M[t, s]:.3g}, right {right[t, s]:.3g}"
            hint = ""
            if torch.allclose(M.float(), right.T, atol=1e-6):
                hint = "; this is the transpose: an impulse at s fills column s"
            raise AssertionError(f"{name}: differs first at [{t}, {s}]: {numbers}{hint}")
    print(f"right: the matrices of {len(cases())} mixers agree")
