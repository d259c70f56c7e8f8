"""Turns text files into batches of token ids."""

from typing import TYPE_CHECKING

from dynconv import import_lazily

if TYPE_CHECKING:
    from dynconv.text.batching import Batch, batch_by_length, collate, pad
    from dynconv.text.corpus import ParallelText, load_parallel
    from dynconv.text.encode import prepare_corpus
    from dynconv.text.examples import Examples, Excerpts, Pairs
    from dynconv.text.lines import read_lines
    from dynconv.text.prepared import PreparedCorpus, is_prepared, open_prepared
    from dynconv.text.vocabulary import EOS, PAD, UNK, Vocabularies, Vocabulary

EXPORTS = {
    "batching": ["Batch", "batch_by_length", "collate", "pad"],
    "corpus": ["ParallelText", "load_parallel"],
    "encode": ["prepare_corpus"],
    "examples": ["Examples", "Excerpts", "Pairs"],
    "lines": ["read_lines"],
    "prepared": ["PreparedCorpus", "is_prepared", "open_prepared"],
    "vocabulary": ["EOS", "PAD", "UNK", "Vocabularies", "Vocabulary"],
}
__all__ = [name for names in EXPORTS.values() for name in names]
# Listing the corpora imports this package, and does not load PyTorch.
__getattr__ = import_lazily(__name__, EXPORTS)
