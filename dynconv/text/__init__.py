"""Text files to batches of token ids."""

from importlib import import_module

EXPORTS = {
    "batching": ["Batch", "buckets", "collate", "pad"],
    "corpus": ["ParallelText", "load_parallel", "read_lines"],
    "encode": ["prepare"],
    "excerpts": ["Excerpts"],
    "pairs": ["Pairs"],
    "prepared": ["Prepared", "is_prepared", "open_prepared"],
    "vocabulary": ["EOS", "PAD", "UNK", "Vocabularies", "Vocabulary"],
}
_MODULE = {name: module for module, names in EXPORTS.items() for name in names}

__all__ = list(_MODULE)


def __getattr__(name: str):
    """Import a name when it is first used, so that listing the corpora does not load PyTorch."""
    if name not in _MODULE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULE[name]}"), name)
