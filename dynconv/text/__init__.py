"""From text files to batches of ids."""

from dynconv.text.batching import Batch, buckets, collate, pad
from dynconv.text.bpe import BPE, EOS, PAD
from dynconv.text.corpus import ParallelText, load_parallel, read_lines
from dynconv.text.prepared import Prepared, is_prepared, open_prepared, prepare

__all__ = [
    "BPE",
    "EOS",
    "PAD",
    "Batch",
    "ParallelText",
    "Prepared",
    "buckets",
    "collate",
    "is_prepared",
    "load_parallel",
    "open_prepared",
    "pad",
    "prepare",
    "read_lines",
]
