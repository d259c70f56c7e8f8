"""Fetches and prepares corpora, learns vocabularies, and makes batches of token ids."""

from typing import TYPE_CHECKING

from dynconv.lazy import import_lazily

if TYPE_CHECKING:
    from dynconv.text.batching import Batch, batch_by_length, collate_pairs, pad_sequences
    from dynconv.text.corpus import ParallelText, load_lines, load_parallel
    from dynconv.text.encode import encode_corpus
    from dynconv.text.examples import Examples, Excerpts, Pairs
    from dynconv.text.lines import read_lines
    from dynconv.text.prepared import PreparedCorpus, is_prepared, open_prepared
    from dynconv.text.vocabulary import EOS, PAD, UNK, Vocabularies, Vocabulary

# A list, since type checkers read it.
__all__ = [
    "EOS", "PAD", "UNK", "Batch", "Examples", "Excerpts", "Pairs", "ParallelText", "PreparedCorpus",
    "Vocabularies", "Vocabulary", "batch_by_length", "collate_pairs", "encode_corpus",
    "is_prepared", "load_lines", "load_parallel", "open_prepared", "pad_sequences", "read_lines",
]  # fmt: skip
# Listing the corpora imports this package, and does not load PyTorch.
__getattr__, __dir__ = import_lazily(
    __name__,
    {
        "batching": ["Batch", "batch_by_length", "collate_pairs", "pad_sequences"],
        "corpus": ["ParallelText", "load_lines", "load_parallel"],
        "encode": ["encode_corpus"],
        "examples": ["Examples", "Excerpts", "Pairs"],
        "lines": ["read_lines"],
        "prepared": ["PreparedCorpus", "is_prepared", "open_prepared"],
        "vocabulary": ["EOS", "PAD", "UNK", "Vocabularies", "Vocabulary"],
    },
)
