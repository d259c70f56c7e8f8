"""The cases at which implementations are measured: operator, size and dtype."""

from math import prod
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from dynconv.dtypes import accumulator_dtype, dtype_name
from dynconv.errors import UserError
from dynconv.ops.shapes import split_heads

POSITIONS = 10_000
"""positions per batch of Table 6, except in its last column of 100,000"""
SOFTMAX_CONV = "softmax_conv"
"""the operator with DropConnect, whose kernels take a seed"""
STATE_SIZE = 16
"""numbers that a state-space model keeps of each channel"""
RECURRENT = ("diagonal_ssm", "retention", "selective_scan")
"""operators with a state in place of a window"""


class Shape(NamedTuple):
    """The sizes of x (B, T, C) and the number of heads."""

    B: int
    T: int
    C: int
    H: int


IWSLT = Shape(B=100, T=32, C=512, H=4)


def parse_shape(text: str) -> Shape:
    """Return the shape that a user names.

    text  a length n, which is a column of Table 6 (Lioutas and Guo 2020); "iwslt"; or "BxTxCxH"
    """
    if text == "iwslt":
        return IWSLT
    numbers = text.split("x")
    if not all(number.isdecimal() and int(number) for number in numbers):
        numbers = []
    if len(numbers) == 1:
        T = int(text)
        return Shape(B=max(1, min(10, POSITIONS // T)), T=T, C=1024, H=16)
    if len(numbers) != 4:
        raise UserError(f"{text!r} is not a shape: give a length like 100, iwslt, or BxTxCxH")
    shape = Shape(*map(int, numbers))
    if shape.C % shape.H:
        raise UserError(f"{text}: {shape.H} heads do not divide {shape.C} channels")
    return shape


class Case(NamedTuple):
    """One operator at one size. All implementations of a case get the same inputs."""

    operator: str
    K: int
    dtype: torch.dtype
    shape: Shape

    def describe(self) -> dict:
        """Return the case as entries of a row in a results file."""
        names = {"operator": self.operator, "K": self.K}
        return names | {"dtype": dtype_name(self.dtype)} | self.shape._asdict()

    @property
    def x_bytes(self) -> int:
        """The bytes of x."""
        return prod(self.shape[:3]) * self.dtype.itemsize

    def inputs(self) -> list[tuple[tuple[int, ...], torch.dtype]]:
        """Return the shape and dtype of every input: x, then the kernels, logits or offsets."""
        (B, T, C, H), K = self.shape, self.K
        x = ((B, T, C), self.dtype)
        if self.operator == "talk_conv":
            # In half precision an offset could not place the edge of a window.
            return [x, *[((B, T, H), accumulator_dtype(self.dtype))] * 2]
        wide = accumulator_dtype(self.dtype)
        N = STATE_SIZE
        if self.operator == "diagonal_ssm":
            return [x, ((C,), wide), *[((C, N), wide.to_complex())] * 2]
        if self.operator == "retention":
            return [x, x, x, ((H,), wide)]
        if self.operator == "selective_scan":
            return [x, x, ((C, N), wide), *[((B, T, N), self.dtype)] * 2]
        kernels = {"depthwise_conv": [(C, K)], "light_conv": [(H, K)], "cumulative_mean": []}
        return [x, *((size, self.dtype) for size in kernels.get(self.operator, [(B, T, H, K)]))]

    def options(self) -> dict[str, int]:
        """Return the keyword arguments that centre the operator's window on each position."""
        if self.operator in ("cumulative_mean", *RECURRENT):
            return {}
        names = ("max_left", "max_right") if self.operator == "talk_conv" else ("pad_left",)
        return dict.fromkeys(names, self.K // 2)


def draw_inputs(case: Case, device: torch.device) -> tuple[list[Tensor], Tensor, Tensor]:
    """Return random inputs, a gradient of the output, and a seed for DropConnect, an int64 of (1,).

    The same case gets the same numbers in every call.
    """
    generator = torch.Generator(device).manual_seed(1)
    options: dict[str, Any] = {"generator": generator, "device": device}
    (size, _), *others = case.inputs()
    x, g = (torch.randn(size, **options).to(case.dtype) for _ in range(2))
    inputs, reach = [x], case.K // 2
    for size, dtype in others:
        if case.operator == "talk_conv":
            # Windows end 1/4 to 3/4 into a token: at a token's end the gradient of the offset
            # jumps, and rounding would decide which side of the jump an implementation sees.
            edge = torch.randint(reach, size, **options) + 0.25 + 0.5 * torch.rand(size, **options)
            inputs.append((edge / reach).to(dtype))
        elif case.operator in RECURRENT:
            inputs.append(torch.randn(size, **options).to(dtype))
        else:
            weight = torch.randn(size, **options)
            if case.operator != SOFTMAX_CONV:  # which is given logits
                weight = weight.softmax(-1)
            inputs.append(weight.to(dtype))
    if case.operator == "diagonal_ssm":  # states that fade, at the pace of S4D's initialisation
        inputs[1], inputs[2] = inputs[1].sigmoid() / 10, -0.5 + 10j * inputs[2].real
    elif case.operator == "retention":
        inputs[3] = 1 - inputs[3].sigmoid() / 10
    elif case.operator == "selective_scan":
        inputs[1], inputs[2] = inputs[1].sigmoid() / 10, -inputs[2].exp()
    return inputs, g, torch.randint(2**63 - 1, (1,), **options)


def attention(q: Tensor, k: Tensor, v: Tensor, heads: int) -> Tensor:
    """Return unmasked attention between (B, T, C) and (B, T, C), without projections."""
    q, k, v = (split_heads(z, heads) for z in (q, k, v))  # (B, H, T, R)
    return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
