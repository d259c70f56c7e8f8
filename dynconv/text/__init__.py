"""From text files to batches of ids."""

from dynconv.text.batching import Batch, buckets, collate, pad
from dynconv.text.bpe import BPE, EOS, PAD
from dynconv.text.corpus import ParallelText, load_parallel, read_lines

__all__ = [
    "BPE",
    "EOS",
    "PAD",
    "Batch",
    "ParallelText",
    "buckets",
    "collate",
    "load_parallel",
    "pad",
    "read_lines",
]
