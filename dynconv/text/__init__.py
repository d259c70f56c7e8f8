"""Text: corpora and where to get them."""

from dynconv.text.corpus import ParallelText, load_parallel, read_lines

__all__ = ["ParallelText", "load_parallel", "read_lines"]
