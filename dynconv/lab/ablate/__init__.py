"""`dynconv ablate`: trains every row of an experiment with several seeds, and can be resumed."""

from dynconv.lab.ablate.rows import ablate

__all__ = ["ablate"]
