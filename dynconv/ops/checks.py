"""Check the arguments of the operators: `check_sequence`, `check_conv`, `check_talk`.

They look at shapes, dtypes and devices alone, never at values.
"""

from torch import Tensor

from dynconv.kernels.dtypes import accumulator


def require_heads(heads: int, channels: int) -> None:
    """Raise unless `heads` divides `channels`."""
    if heads < 1 or channels % heads:
        raise ValueError(f"{heads} heads do not divide {channels} channels")


def require_floating(name: str, tensor: Tensor) -> None:
    """Raise TypeError unless the tensor holds real floating-point numbers."""
    if not tensor.is_floating_point():
        raise TypeError(f"{name} is {tensor.dtype}: cast it to a floating dtype with .to()")


def require_same_device(a_name: str, a: Tensor, b_name: str, b: Tensor) -> None:
    """Raise unless both tensors lie on one device."""
    if a.device != b.device:
        raise ValueError(f"{a_name} is on {a.device}, {b_name} on {b.device}: move one with .to()")


def require_same_dtype(a_name: str, a: Tensor, b_name: str, b: Tensor) -> None:
    """Raise TypeError unless both tensors have one dtype."""
    if a.dtype != b.dtype:
        raise TypeError(f"{a_name} is {a.dtype}, {b_name} {b.dtype}: cast one with .to()")


def check_sequence(x: Tensor) -> None:
    """Raise unless x is floating (B, T, C), T and C at least 1; B = 0 gives an empty result."""
    require_floating("x", x)
    if x.dim() != 3:
        raise ValueError(f"x {tuple(x.shape)} has {x.dim()} dimensions: give it three, (B, T, C)")
    if x.shape[1] == 0 or x.shape[2] == 0:
        raise ValueError(f"x {tuple(x.shape)} is empty: T and C must be at least 1")


def check_conv(x: Tensor, weight: Tensor, pad_left: int, axes: str, name: str = "weight") -> None:
    """Raise unless x (B, T, C), a weight of these axes and pad_left make a convolution.

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
    """Raise unless x (B, T, C), offsets (B, T, H) and the two reaches make a TaLK convolution.

    Offsets have x's dtype or, where x is in half precision, float32: they place edges.
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
