"""Checks the answers to exercises: prints "right: ...", or says where and how one is wrong.

Each check takes the reader's function, `mine`, and its docstring says what `mine` must return.
"""

# ruff: noqa: F401  # the names that lessons call, one module for each subject
from dynconv.teach.check.beyond_translation import adaptive_argmax, rouge_l, seeds_needed
from dynconv.teach.check.convolutions import (
    depthwise,
    dilated,
    dropconnect_mask,
    dynamic,
    folded,
    light,
    light_gradient,
    renormalised,
    scaled_gradient,
    softmax_gradient,
)
from dynconv.teach.check.dynamicconv import dynamic_step, exponential_average, sparsemax
from dynconv.teach.check.installation import environment
from dynconv.teach.check.kernels import (
    chunked_scan_kernel,
    depthwise_kernel,
    weight_gradient_kernel,
)
from dynconv.teach.check.mixing import mixing_matrix
from dynconv.teach.check.prefix_sums import summed_area
from dynconv.teach.check.random_kernel import dropconnect_kernel
from dynconv.teach.check.scale import accumulation, cleaned, ring_all_reduce
from dynconv.teach.check.sequences import respell, resumable, window_attention
from dynconv.teach.check.states import gated_chunk, numbers_kept, state_after
from dynconv.teach.check.talkconv import talk, talk_gradient, true_width
from dynconv.teach.check.translation import block_trigrams, chrf, moved_positions, schedule
