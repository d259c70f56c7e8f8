"""Operators, each in a file that begins with its equation and its oracle, a loop; and helpers."""

# No file of this folder is named after its function (`retnet.py` has `retention`): the function
# would hide the module, from which tests and lessons import the implementations.
from dynconv.ops.average import cumulative_mean
from dynconv.ops.depthwise import depthwise_conv
from dynconv.ops.dynamicconv import dynamic_conv
from dynconv.ops.lightconv import light_conv
from dynconv.ops.normalize import normalize_kernel
from dynconv.ops.registry import implementations
from dynconv.ops.retnet import retention
from dynconv.ops.selective import selective_scan
from dynconv.ops.softmaxconv import softmax_conv
from dynconv.ops.ssm import diagonal_ssm
from dynconv.ops.talk import talk_conv

__all__ = [
    "cumulative_mean",
    "depthwise_conv",
    "diagonal_ssm",
    "dynamic_conv",
    "implementations",
    "light_conv",
    "normalize_kernel",
    "retention",
    "selective_scan",
    "softmax_conv",
    "talk_conv",
]
