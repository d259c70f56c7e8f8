"""The checks of the exercises: each says "right", or where and how an answer is not."""

from dynconv.teach.check.attention import window_attention
from dynconv.teach.check.averaging import exponential_average
from dynconv.teach.check.bleu import chrf
from dynconv.teach.check.convolutions import depthwise, dilated, dynamic, light, light_gradient
from dynconv.teach.check.distributed import ring_all_reduce
from dynconv.teach.check.dropconnect import dropconnect_mask
from dynconv.teach.check.dynamicconv_kernels import dropconnect_kernel
from dynconv.teach.check.environment import environment
from dynconv.teach.check.findings import seeds_needed
from dynconv.teach.check.gates import scaled_gradient
from dynconv.teach.check.iwslt import cleaned
from dynconv.teach.check.kernels import depthwise_kernel
from dynconv.teach.check.language import adaptive_argmax
from dynconv.teach.check.lightconv_kernels import weight_gradient_kernel
from dynconv.teach.check.mixing import mixing_matrix
from dynconv.teach.check.module import folded
from dynconv.teach.check.normalizers import sparsemax
from dynconv.teach.check.positions import moved_positions
from dynconv.teach.check.prefix_sums import summed_area
from dynconv.teach.check.search import block_trigrams
from dynconv.teach.check.softmax import renormalised, softmax_gradient
from dynconv.teach.check.summaries import rouge_l
from dynconv.teach.check.talk_gradients import talk_gradient
from dynconv.teach.check.talk_kernels import chunked_scan_kernel
from dynconv.teach.check.talk_layer import true_width
from dynconv.teach.check.talk_windows import talk
from dynconv.teach.check.text import respell, resumable
from dynconv.teach.check.training import schedule
from dynconv.teach.check.wmt import accumulation

__all__ = [
    "accumulation",
    "adaptive_argmax",
    "block_trigrams",
    "chrf",
    "chunked_scan_kernel",
    "cleaned",
    "depthwise",
    "depthwise_kernel",
    "dilated",
    "dropconnect_kernel",
    "dropconnect_mask",
    "dynamic",
    "environment",
    "exponential_average",
    "folded",
    "light",
    "light_gradient",
    "mixing_matrix",
    "moved_positions",
    "renormalised",
    "respell",
    "resumable",
    "ring_all_reduce",
    "rouge_l",
    "scaled_gradient",
    "schedule",
    "seeds_needed",
    "softmax_gradient",
    "sparsemax",
    "summed_area",
    "talk",
    "talk_gradient",
    "true_width",
    "weight_gradient_kernel",
    "window_attention",
]
