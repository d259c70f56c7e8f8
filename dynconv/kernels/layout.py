"""Brings tensors into the layouts and dtypes that the C and CUDA kernels expect."""

from torch import Tensor

from dynconv.dtypes import upcast

MIN_VECTOR_CHANNELS = 8
"""the fewest channels per head that fill the vectors of the C kernels"""


def contiguous_channels(x: Tensor) -> Tensor:
    """Return x (B, T, C) with contiguous channels; batch and time may have any strides."""
    return x if x.stride(2) == 1 else x.contiguous()


def contiguous_taps(weight: Tensor) -> Tensor:
    """Return (H, K) or (B, T, H, K) with contiguous (H, K); B and T may have any strides."""
    dense = weight.stride(-1) == 1 and weight.stride(-2) == weight.shape[-1]
    return weight if dense else weight.contiguous()


def contiguous_offsets(x: Tensor) -> Tensor:
    """Return TaLK's offsets contiguous and in float32 or wider, as half precision is too coarse."""
    return upcast(x).contiguous()
