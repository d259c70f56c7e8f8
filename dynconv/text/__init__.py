"""From text files to batches of ids."""

from dynconv.text.batching import Batch, buckets, collate, pad
from dynconv.text.corpus import ParallelText, load_parallel, read_lines
from dynconv.text.excerpts import Excerpts
from dynconv.text.pairs import Pairs
from dynconv.text.preparation import prepare
from dynconv.text.prepared import Prepared, is_prepared, open_prepared
from dynconv.text.vocabulary import EOS, PAD, UNK, Vocabularies, Vocabulary

__all__ = [
    "EOS",
    "PAD",
    "Batch",
    "Excerpts",
    "Pairs",
    "ParallelText",
    "Prepared",
    "UNK",
    "Vocabularies",
    "Vocabulary",
    "buckets",
    "collate",
    "is_prepared",
    "load_parallel",
    "open_prepared",
    "pad",
    "prepare",
    "read_lines",
]
