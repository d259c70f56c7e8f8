"""Models, which `build` makes from a configuration."""

from dynconv.models.build import build
from dynconv.models.convs2s import ConvS2S
from dynconv.models.language import LanguageModel
from dynconv.models.seq2seq import Seq2Seq

__all__ = ["ConvS2S", "LanguageModel", "Seq2Seq", "build"]
