"""The checks of the exercises: each says "right", or where and how an answer is not."""

from dynconv.teach.check.attention import window_attention
from dynconv.teach.check.convolutions import depthwise, dilated, dynamic, light, light_gradient
from dynconv.teach.check.text import respell, resumable

__all__ = [
    "depthwise",
    "dilated",
    "dynamic",
    "light",
    "light_gradient",
    "respell",
    "resumable",
    "window_attention",
]
