"""Checks the installation, and the exercise on mixing matrices."""

from collections.abc import Callable
from functools import partial
from importlib.util import find_spec

import torch
from torch import Tensor

from dynconv import ops
from dynconv.errors import UserError
from dynconv.teach.judge import FLOAT32, Wrong, describe_type, judge
from dynconv.teach.mixing import mixing_matrix as reference
from dynconv.text.corpus import load_parallel

PACKAGES = {
    "IPython", "matplotlib", "nltk", "numpy", "pooch", "pydantic", "sacrebleu", "sacremoses",
    "safetensors", "tokenizers", "torch",
}  # fmt: skip
"""packages to import: rouge-score needs nltk, jupyterlab needs IPython"""


def environment() -> None:
    """Raise `Wrong` with a sentence for each thing that is missing, and how to get it."""
    missing = []
    for name in PACKAGES:
        if find_spec(name) is None:
            install = "run pip install -e '.[lessons]' in the repository's folder"
            missing.append(f"The package {name} is missing: {install}.")
    try:
        load_parallel("libreoffice-de-en", "de", "en", "test")
    except UserError as error:
        missing.append(f"The text of the lessons cannot be read: {error}.")
    case = {"": (torch.randn(1, 5, 4), torch.randn(4, 3))}
    mine, right = (partial(ops.depthwise_conv, pad_left=1, impl=impl) for impl in ("auto", "loop"))
    try:
        judge(mine, right, case, gradients=True)
    except Wrong as error:
        missing.append(f"A convolution goes wrong, and `dynconv doctor` may say why: {error}.")
    if missing:
        raise Wrong("\n".join(sorted(missing)))
    print("ready: packages, text and operators are here")


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
