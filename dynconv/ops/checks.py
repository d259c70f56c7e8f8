"""Checks the arguments of the operators: their shapes, dtypes and devices, but not their values."""

from torch import Tensor

from dynconv.kernels.dtypes import accumulator


def require_heads(heads: int, channels: int) -> None:
    """Raise ValueError unless `heads` divides `channels`."""
    if heads < 1 or channels % heads:
        raise ValueError(f"{heads} heads do not divide {channels} channels")


def require_floating(name: str, tensor: Tensor) -> None:
    """Raise TypeError unless the tensor is real and floating-point."""
    if not tensor.is_floating_point():
        raise TypeError(f"{name} is {tensor.dtype}: cast it to a floating dtype with .to()")


def require_same_device(a_name: str, a: Tensor, b_name: str, b: Tensor) -> None:
    """Raise ValueError unless both tensors are on the same device."""
    if a.device != b.device:
        raise ValueError(f"{a_name} is on {a.device}, {b_name} on {b.device}: move one with .to()")


def require_same_dtype(a_name: str, a: Tensor, b_name: str, b: Tensor) -> None:
    """Raise TypeError unless both tensors have the same dtype."""
    if a.dtype != b.dtype:
        raise TypeError(f"{a_name} is {a.dtype}, {b_name} {b.dtype}: cast one with .to()")


def check_sequence(x: Tensor) -> None:
    """Raise unless x is floating-point (B, T, C) with T, C >= 1. B may be 0."""
    require_floating("x", x)
    if x.dim() != 3:
        raise ValueError(f"x {tuple(x.shape)} has {x.dim()} dimensions: give it three, (B, T, C)")
    if x.shape[1] == 0 or x.shape[2] == 0:
        raise ValueError(f"x {tuple(x.shape)} is empty: T and C must be at least 1")


def check_conv(x: Tensor, weight: Tensor, pad_left: int, axes: str, name: str = "weight") -> None:
    """Raise unless x (B, T, C), a weight with these axes and pad_left fit together.

    axes  "CK" depthwise, "HK" LightConv, "BTHK" DynamicConv
    """
    check_sequence(x)
    require_same_device("x", x, name, weight)
    require_same_dtype("x", x, name, weight)
    if weight.dim() != len(axes) or (axes == "BTHK" and weight.shape[:2] != x.shape[:2]):
        raise ValueError(
            f"{name} {tuple(weight.shape)} does not fit x {tuple(x.shape)}: "
            f"{name} is ({', '.join(axes)}) for x (B, T, C)"
        )
    kernels, kernel_size = weight.shape[-2:]
    if axes == "CK" and kernels != x.shape[2]:
        raise ValueError(f"{kernels} kernels for {x.shape[2]} channels: give one per channel")
    require_heads(kernels, x.shape[2])
    if kernel_size == 0:
        raise ValueError(f"{name} {tuple(weight.shape)} has no taps: K must be at least 1")
    if not 0 <= pad_left < kernel_size:
        raise ValueError(f"pad_left {pad_left} lies outside [0, {kernel_size - 1}] (K - 1)")


def check_talk(
    x: Tensor, left: Tensor, right: Tensor | None, max_left: int, max_right: int
) -> None:
    """Raise unless x (B, T, C), the offsets (B, T, H) and the reaches fit together.

    Offsets have the dtype of x. They may be float32 if x is in half precision.
    """
    check_sequence(x)
    if max_left < 0 or max_right < 0:
        raise ValueError(f"max_left {max_left} and max_right {max_right} must not be negative")
    if (right is None) != (max_right == 0):
        raise ValueError(f"right must be None exactly when max_right, here {max_right}, is 0")
    wide = accumulator(x.dtype)
    for name, offset in (("left", left), ("right", right)):
        if offset is None:
            continue
        require_same_device("x", x, name, offset)
        if offset.dtype not in (x.dtype, wide):
            raise TypeError(f"x is {x.dtype}, {name} {offset.dtype}: cast {name} to {wide}")
        if offset.dim() != 3 or offset.shape[:2] != x.shape[:2]:
            raise ValueError(
                f"{name} {tuple(offset.shape)} does not fit x {tuple(x.shape)}: "
                f"{name} is (B, T, H) for x (B, T, C)"
            )
    require_heads(left.shape[2], x.shape[2])
    if right is not None:
        require_same_dtype("left", left, "right", right)
        if right.shape[2] != left.shape[2]:
            raise ValueError(f"left has {left.shape[2]} heads, right {right.shape[2]}: give both H")
