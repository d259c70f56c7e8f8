"""What `bench ops` lets compete: shapes, the operators with their inputs, attention, a copy."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from dynconv import ops
from dynconv.errors import UserError
from dynconv.lab.bench.measure import peak
from dynconv.ops.registry import OPERATORS

POSITIONS = 10_000  # the most in a batch of Table 6; the last column of the paper has 100,000
PROBES = 256, 512, 768  # lengths from which the memory of longer sequences is foretold


class Shape(NamedTuple):
    """The sizes of x (B, T, C) and the number of heads."""

    B: int
    T: int
    C: int
    H: int


IWSLT = Shape(B=100, T=32, C=512, H=4)


def parse_shape(text: str) -> Shape:
    """`n`, a column of Table 6 (Lioutas and Guo 2020); `iwslt`; or `BxTxCxH`."""
    if text == "iwslt":
        return IWSLT
    numbers = text.split("x")
    if not all(number.isdecimal() and int(number) for number in numbers):
        numbers = []
    if len(numbers) == 1:
        T = int(text)
        return Shape(B=max(1, min(10, POSITIONS // T)), T=T, C=1024, H=16)
    if len(numbers) != 4:
        raise UserError(f"{text!r} is no shape: give a length like 100, iwslt, or BxTxCxH")
    shape = Shape(*map(int, numbers))
    if shape.C % shape.H:
        raise UserError(f"{text}: {shape.H} heads do not divide {shape.C} channels")
    return shape


@dataclass(frozen=True)
class Case:
    """One competitor with its inputs and, if it has a backward pass, the gradient of its output."""

    operator: str
    impl: str
    function: Callable[..., Tensor]
    inputs: Sequence[Tensor]
    gradient: Tensor | None

    @property
    def name(self) -> str:
        return f"{self.operator} {self.impl}".strip()

    def forward(self) -> Tensor:
        return self.function(*self.inputs)

    def both(self) -> Sequence[Tensor]:
        """Forward and backward, to all inputs; nothing is added up in `.grad`."""
        with torch.enable_grad():
            return torch.autograd.grad(self.forward(), self.inputs, self.gradient)


def attention(q: Tensor, k: Tensor, v: Tensor, heads: int) -> Tensor:
    """Unmasked attention between (B, T, C) and (B, T, C), without projections."""
    q, k, v = (z.unflatten(2, (heads, -1)).transpose(1, 2) for z in (q, k, v))  # (B, H, T, R)
    return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)


def cases(shape: Shape, K: int, chosen: dict[str, list[str]]) -> list[Case]:
    """A copy, attention, and the chosen implementations of each operator, on the same x."""
    B, T, C, H = shape
    draw = torch.Generator().manual_seed(1)
    x, k, v, gradient = (torch.randn(B, T, C, generator=draw) for _ in range(4))
    kernels = {
        "depthwise_conv": (C, K),
        "light_conv": (H, K),
        "dynamic_conv": (B, T, H, K),
        "dynamic_conv_softmax": (B, T, H, K),
    }
    made = [
        Case("copy", "", torch.empty_like(x).copy_, [x], None),
        Case("attention", "", partial(attention, heads=H), [x, k, v], gradient),
    ]
    for operator, impls in chosen.items():
        inputs, sizes = [x], {}
        if operator in kernels:
            inputs += [torch.randn(kernels[operator], generator=draw).softmax(-1)]
            sizes = {"pad_left": K // 2}
        elif operator == "talk_conv":
            inputs += [torch.rand(B, T, H, generator=draw) for _ in range(2)]
            sizes = {"max_left": K // 2, "max_right": K // 2}
        for impl in impls:
            function = partial(getattr(ops, operator), **sizes, impl=impl)
            made.append(Case(operator, impl, function, inputs, gradient))
    for case in made[1:]:
        for tensor in case.inputs:
            tensor.requires_grad_()
    return made


def pick(operators: Sequence[str], impls: Sequence[str] | None) -> dict[str, list[str]]:
    """The implementations to measure of each operator; without names, all but the oracle."""
    chosen = {}
    for operator in operators:
        if operator not in OPERATORS:
            raise UserError(f"no operator {operator!r}: there are {', '.join(OPERATORS)}")
        known = ["auto", *ops.implementations(operator)]
        chosen[operator] = [impl for impl in known if (impl in impls if impls else impl != "loop")]
    for impl in impls or ():
        if not any(impl in found for found in chosen.values()):
            known = sorted({impl for name in operators for impl in ops.implementations(name)})
            raise UserError(f"no implementation {impl!r} here: there are auto, {', '.join(known)}")
    return chosen


def foretell(shape: Shape, K: int, chosen: dict[str, list[str]]) -> list[float]:
    """About how many bytes each case needs at its peak, in the order of `cases`.

    Measured on one sentence of three short lengths: the parabola through their peaks knows of
    T x T matrices and of K copies.
    """
    lengths = PROBES if shape.T > max(PROBES) else (shape.T,)
    shares = [prod((shape.T - b) / (a - b) for b in lengths if b != a) for a in lengths]  # Lagrange
    peaks = [
        [peak(case.both) if case.gradient is not None else 0 for case in short]
        for short in (cases(shape._replace(B=1, T=T), K, chosen) for T in lengths)
    ]
    return [
        shape.B * sum(share * found for share, found in zip(shares, of_case, strict=True))
        for of_case in zip(*peaks, strict=True)
    ]
