"""The checks of the exercises: each says "right", or where and how an answer is not."""

from dynconv.teach.check.attention import window_attention
from dynconv.teach.check.averaging import exponential_average
from dynconv.teach.check.convolutions import depthwise, dilated, dynamic, light, light_gradient
from dynconv.teach.check.dropconnect import dropconnect_mask
from dynconv.teach.check.environment import environment
from dynconv.teach.check.gates import scaled_gradient
from dynconv.teach.check.mixing import mixing_matrix
from dynconv.teach.check.module import folded
from dynconv.teach.check.normalizers import sparsemax
from dynconv.teach.check.prefix_sums import summed_area
from dynconv.teach.check.softmax import renormalised, softmax_gradient
from dynconv.teach.check.text import respell, resumable

__all__ = [
    "depthwise",
    "dilated",
    "dropconnect_mask",
    "dynamic",
    "environment",
    "exponential_average",
    "folded",
    "light",
    "light_gradient",
    "mixing_matrix",
    "renormalised",
    "respell",
    "resumable",
    "scaled_gradient",
    "softmax_gradient",
    "sparsemax",
    "summed_area",
    "window_attention",
]
