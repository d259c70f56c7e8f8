"""Convolutions that compete with self-attention, from the equation to training."""

from typing import TYPE_CHECKING

from dynconv.lazy import import_lazily

if TYPE_CHECKING:
    from dynconv import config, decode, layers, models, ops, score, train

__version__ = "0.2.0.dev0"

# A list, since type checkers read it.
__all__ = ["config", "decode", "layers", "models", "ops", "score", "train"]
__getattr__, __dir__ = import_lazily(__name__, {}, __all__)
