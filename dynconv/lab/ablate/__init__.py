"""`dynconv ablate`: trains every row of an experiment with several seeds, and can be resumed."""

from dynconv.lab.ablate.loop import ablate

__all__ = ["ablate"]
