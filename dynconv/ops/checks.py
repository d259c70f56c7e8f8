"""Checks the arguments of the operators: their shapes, dtypes and devices, but not their values."""

import torch
from torch import Tensor

from dynconv.dtypes import accumulator_dtype
from dynconv.value_checks import check_heads, check_reach


def check_tensor(name: str, value: object) -> None:
    """Raise TypeError unless a value is a tensor."""
    if not isinstance(value, Tensor):
        raise TypeError(f"{name} is of type {type(value).__name__}: give a torch.Tensor")


def check_floating(name: str, tensor: Tensor) -> None:
    """Raise TypeError unless the tensor is real and floating-point."""
    check_tensor(name, tensor)
    if not tensor.is_floating_point():
        raise TypeError(f"{name} is {tensor.dtype}: cast it to a floating dtype with .to()")


def check_same_device(a_name: str, a: Tensor, b_name: str, b: Tensor) -> None:
    """Raise ValueError unless both are on the same device. Raise TypeError if one is no tensor."""
    check_tensor(a_name, a)
    check_tensor(b_name, b)
    if a.device != b.device:
        raise ValueError(f"{a_name} is on {a.device}, {b_name} on {b.device}: move one with .to()")


def check_same_dtype(a_name: str, a: Tensor, b_name: str, b: Tensor) -> None:
    """Raise TypeError unless both tensors have the same dtype."""
    if a.dtype != b.dtype:
        raise TypeError(f"{a_name} is {a.dtype}, {b_name} {b.dtype}: cast one with .to()")


def check_sequence(x: Tensor, name: str = "x") -> None:
    """Raise unless x is floating-point (B, T, C) with T, C >= 1. B may be 0."""
    check_floating(name, x)
    shape = tuple(x.shape)
    if x.dim() != 3:
        raise ValueError(f"{name} {shape} has {x.dim()} dimensions: give it three, (B, T, C)")
    if x.shape[1] == 0 or x.shape[2] == 0:
        raise ValueError(f"{name} {shape} is empty: T and C must be at least 1")


def check_conv(x: Tensor, weight: Tensor, pad_left: int, axes: str, name: str = "weight") -> None:
    """Raise unless x (B, T, C), a weight with these axes and pad_left fit together.

    axes  "CK" depthwise, "HK" LightConv, "BTHK" DynamicConv
    """
    check_sequence(x)
    check_same_device("x", x, name, weight)
    check_same_dtype("x", x, name, weight)
    if weight.dim() != len(axes) or (axes == "BTHK" and weight.shape[:2] != x.shape[:2]):
        raise ValueError(
            f"{name} {tuple(weight.shape)} does not fit x {tuple(x.shape)}: "
            f"{name} is ({', '.join(axes)}) for x (B, T, C)"
        )
    kernels, kernel_size = weight.shape[-2:]
    if axes == "CK" and kernels != x.shape[2]:
        raise ValueError(f"{kernels} kernels for {x.shape[2]} channels: give one per channel")
    check_heads(kernels, x.shape[2])
    if kernel_size == 0:
        raise ValueError(f"{name} {tuple(weight.shape)} has no taps: K must be at least 1")
    if isinstance(pad_left, float):
        raise TypeError(f"pad_left {pad_left} must be an integer")
    if not 0 <= pad_left < kernel_size:
        raise ValueError(f"pad_left {pad_left} lies outside [0, {kernel_size - 1}] (K - 1)")


def check_talk(
    x: Tensor, left: Tensor, right: Tensor | None, max_left: int, max_right: int
) -> None:
    """Raise unless x (B, T, C), the offsets (B, T, H) and the reaches fit together.

    Offsets have the dtype of x. They may be float32 if x is in half precision.
    """
    check_sequence(x)
    check_reach(max_left, max_right)
    if right is None and max_right > 0:
        raise ValueError(f"max_right {max_right} needs right")
    if right is not None and max_right == 0:
        raise ValueError("max_right is 0: leave out right")
    sums_dtype = accumulator_dtype(x.dtype)
    offsets = {"left": left} if right is None else {"left": left, "right": right}
    for name, offset in offsets.items():
        check_same_device("x", x, name, offset)
        if offset.dtype not in (x.dtype, sums_dtype):
            raise TypeError(f"x is {x.dtype}, {name} {offset.dtype}: cast {name} to {sums_dtype}")
        if offset.dim() != 3 or offset.shape[:2] != x.shape[:2]:
            raise ValueError(
                f"{name} {tuple(offset.shape)} does not fit x {tuple(x.shape)}: "
                f"{name} is (B, T, H) for x (B, T, C)"
            )
    check_heads(left.shape[2], x.shape[2])
    if right is not None:
        check_same_dtype("left", left, "right", right)
        if right.shape[2] != left.shape[2]:
            raise ValueError(f"left has {left.shape[2]} heads, right {right.shape[2]}: give both H")


def check_shape(name: str, tensor: Tensor, axes: str, *sizes: int) -> None:
    """Raise ValueError unless a tensor has these sizes; `axes` names them."""
    if tensor.shape != sizes:
        expected = ", ".join(map(str, sizes))
        raise ValueError(f"{name} {tuple(tensor.shape)} does not fit: {axes} is ({expected}) here")


def check_sums_dtype(
    name: str, tensor: Tensor, x: Tensor, dtype: torch.dtype, x_name: str = "x"
) -> None:
    """Raise unless a tensor is in the dtype of sums for x, and on its device."""
    check_same_device(x_name, x, name, tensor)
    if tensor.dtype != dtype:
        raise TypeError(f"{x_name} is {x.dtype}, {name} {tensor.dtype}: cast {name} to {dtype}")


def require_states(name: str, tensor: Tensor, x: Tensor) -> int:
    """Return N of a tensor (channels, N). Raises ValueError unless it fits x and N is positive."""
    channels = x.shape[2]
    if tensor.dim() != 2 or tensor.shape[0] != channels or tensor.shape[1] == 0:
        raise ValueError(
            f"{name} {tuple(tensor.shape)} does not fit x {tuple(x.shape)}: {name} is "
            f"({channels}, N) here, with N at least 1"
        )
    return tensor.shape[1]


def check_ssm(x: Tensor, dt: Tensor, A: Tensor, C: Tensor) -> None:
    """Raise unless x (B, T, channels), dt (channels,), A and C (channels, N) fit together."""
    check_sequence(x)
    sums_dtype = accumulator_dtype(x.dtype)
    check_sums_dtype("dt", dt, x, sums_dtype)
    for name, tensor in (("A", A), ("C", C)):
        check_sums_dtype(name, tensor, x, sums_dtype.to_complex())
    check_shape("dt", dt, "(channels,)", x.shape[2])
    check_shape("C", C, "(channels, N)", x.shape[2], require_states("A", A, x))


def check_conv_step(past: Tensor, row_of: Tensor, weight: Tensor) -> None:
    """Raise unless past (K, M, C), row_of (N, K) int64 and weight (N, H, K) fit together."""
    check_floating("past", past)
    for name, tensor, axes in (("past", past, "(K, M, C)"), ("weight", weight, "(N, H, K)")):
        if tensor.dim() != 3:
            raise ValueError(
                f"{name} {tuple(tensor.shape)} has {tensor.dim()} dimensions: give it three, {axes}"
            )
    for name, tensor in (("row_of", row_of), ("weight", weight)):
        check_same_device("past", past, name, tensor)
    check_same_dtype("past", past, "weight", weight)
    if row_of.dtype != torch.int64:
        raise TypeError(f"row_of is {row_of.dtype}: cast it to torch.int64")
    K, (N, H, _) = len(past), weight.shape
    check_shape("row_of", row_of, "(N, K)", N, K)
    check_shape("weight", weight, "(N, H, K)", N, H, K)
    check_heads(H, past.shape[2])


def check_retention(q: Tensor, k: Tensor, v: Tensor, gamma: Tensor) -> None:
    """Raise unless q, k and v (B, T, C) and the decays gamma (H,) fit together."""
    check_sequence(q, "q")
    for name, tensor in (("k", k), ("v", v)):
        check_same_device("q", q, name, tensor)
        check_same_dtype("q", q, name, tensor)
        check_shape(name, tensor, "(B, T, C)", *q.shape)
    check_sums_dtype("gamma", gamma, q, accumulator_dtype(q.dtype), "q")
    if gamma.dim() != 1:
        raise ValueError(f"gamma {tuple(gamma.shape)} does not fit: it is (H,)")
    check_heads(len(gamma), q.shape[2])


def check_selective(x: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor) -> None:
    """Raise unless x, dt (batch, T, channels), A (channels, N), B, C (batch, T, N) fit together."""
    check_sequence(x)
    for name, tensor in (("dt", dt), ("B", B), ("C", C)):
        check_same_device("x", x, name, tensor)
        check_same_dtype("x", x, name, tensor)
    check_sums_dtype("A", A, x, accumulator_dtype(x.dtype))
    N = require_states("A", A, x)
    check_shape("dt", dt, "(batch, T, channels)", *x.shape)
    for name, tensor in (("B", B), ("C", C)):
        check_shape(name, tensor, "(batch, T, N)", *x.shape[:2], N)
