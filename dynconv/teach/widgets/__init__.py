"""Interactive figures, whose Python class contains the data that a JavaScript file draws."""

from dynconv.teach.widgets.figures import (
    BeamGrowth,
    BlockTrace,
    KernelSoftmax,
    MixingRow,
    PairMerges,
    PrefixScan,
    SlidingWindow,
    TalkWindow,
    WordKernels,
)

__all__ = [
    "BeamGrowth", "BlockTrace", "KernelSoftmax", "MixingRow", "PairMerges", "PrefixScan",
    "SlidingWindow", "TalkWindow", "WordKernels",
]  # fmt: skip
