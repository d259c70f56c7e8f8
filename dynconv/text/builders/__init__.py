"""Builds the papers' data sets: from unpacked raw archives to plain text files, one per split."""

from dynconv.text.builders.build import build_corpus, unpack_and_build

__all__ = ["build_corpus", "unpack_and_build"]
