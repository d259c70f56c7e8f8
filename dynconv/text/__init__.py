"""Turns text files into batches of token ids."""

from dynconv import export_lazily

EXPORTS = {
    "batching": ["Batch", "buckets", "collate", "pad"],
    "corpus": ["ParallelText", "load_parallel", "read_lines"],
    "encode": ["prepare"],
    "examples": ["Examples", "Excerpts", "Pairs"],
    "prepared": ["Prepared", "is_prepared", "open_prepared"],
    "vocabulary": ["EOS", "PAD", "UNK", "Vocabularies", "Vocabulary"],
}
# so that listing the corpora does not load PyTorch
__all__, __getattr__ = export_lazily(__name__, EXPORTS)
