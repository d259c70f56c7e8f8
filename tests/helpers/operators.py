"""Inputs, calls and tolerances that the tests of the C and CUDA kernels share."""

import torch

from dynconv import ops
from dynconv.dtypes import accumulator_dtype
from dynconv.ops.registry import OPERATORS

F32, F64, F16, HALF = torch.float32, torch.float64, torch.float16, torch.bfloat16
CONVS = ("depthwise_conv", "light_conv", "dynamic_conv")


def operators_with(impl: str) -> list[str]:
    return [name for name, known in OPERATORS.items() if impl in known.implementations]


# Independent of the kernels, exact in float64, and quicker than the loop.
REFERENCE = dict.fromkeys(CONVS, "shifted") | {
    "softmax_conv": "separate",
    "talk_conv": "table",
    "cumulative_mean": "sum",
}


def case(name: str, B: int, T: int, H: int, R: int, K: int, dtype=F64, mean=0.0) -> list:
    """Inputs of the operator, which `call` takes; channels C = H R."""
    x = torch.randn(B, T, H * R) + mean
    if name == "cumulative_mean":
        return [x.to(dtype)]
    if name == "talk_conv":
        offsets = torch.rand(1 + (K > 2), B, T, H) * 1.1  # dropout enlarges some beyond 1
        return [x.to(dtype), *offsets.to(accumulator_dtype(dtype))]
    shape = {"depthwise_conv": (H * R, K), "light_conv": (H, K)}.get(name, (B, T, H, K))
    return [x.to(dtype), torch.randn(shape).to(dtype)]


def call(name: str, impl: str, inputs: list, K: int) -> torch.Tensor:
    if name == "cumulative_mean":
        return ops.cumulative_mean(*inputs, impl=impl)
    if name == "talk_conv":
        x, left, right = *inputs, *[None] * (3 - len(inputs))
        return ops.talk_conv(x, left, right, max_left=K // 2, max_right=K - 1 - K // 2, impl=impl)
    return getattr(ops, name)(*inputs, pad_left=K // 2, impl=impl)


def graph(name: str, impl: str, inputs: list, K: int, g: torch.Tensor) -> tuple:
    """The operator's result and the gradients of its inputs."""
    inputs = [z.detach().requires_grad_() for z in inputs]
    out = call(name, impl, inputs, K)
    return out.detach(), *torch.autograd.grad(out, inputs, g)


def expected(name: str, inputs: list, K: int, g: torch.Tensor) -> tuple:
    """The same in float64, by an independent implementation."""
    return graph(name, REFERENCE[name], [z.double() for z in inputs], K, g.double())


def assert_exact(actual: tuple, reference: tuple, where: str, float32: float = 5e-7) -> None:
    """Close to the float64 results, as close as the dtype allows."""
    for what, a, b in zip(("out", "dx", "d2", "d3"), actual, reference, strict=False):
        size = b.norm() / max(1, b.numel()) ** 0.5
        error = (a.double() - b).abs()
        if a.dtype in (HALF, F16):
            # Half a unit in the last place, and the error of the float32 sum before.
            unit = 2**-8 if a.dtype == HALF else 2**-11
            wrong = ~(error <= unit * b.abs() + 2e-6 * size)
            assert not wrong.any(), f"{what} {where}: {wrong.sum()} of {wrong.numel()}"
        else:
            limit = float32 if a.dtype == F32 else 1e-13
            assert error.norm() <= limit * b.norm(), f"{what} {where}: {error.norm() / b.norm()}"


def scramble(x: torch.Tensor) -> torch.Tensor:
    """MurmurHash3's finaliser, of 32-bit numbers in int64."""
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        x = ((x ^ x >> shift) * factor) & 0xFFFFFFFF
    return x


def mask(seed: int, shape: tuple, dropout: float) -> torch.Tensor:
    """What DropConnect multiplies the weights by."""
    index = torch.arange(torch.Size(shape).numel()).view(shape)
    first, second = torch.tensor(seed & 0xFFFFFFFF), torch.tensor(seed >> 32)
    value = scramble(scramble(index ^ first) ^ scramble(second ^ scramble(first)))
    return (value >= int(dropout * 2**32)).double() / (1 - dropout)
