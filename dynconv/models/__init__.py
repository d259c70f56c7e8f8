"""Whole models, built from a configuration."""

from dynconv.models.build import build
from dynconv.models.seq2seq import Seq2Seq

__all__ = ["Seq2Seq", "build"]
