"""Ablations: the rows of a table, each trained with several seeds, by one resumable command."""

from dynconv.ablate.command import ablate
from dynconv.ablate.config import listing

__all__ = ["ablate", "listing"]
