"""Builds the papers' data sets: from unpacked raw archives to plain text files, one per split."""

from dynconv.text.sets.build import build_corpus, corpus_text

__all__ = ["build_corpus", "corpus_text"]
