"""Ablations: the rows of a table, each trained with several seeds, by one resumable command."""

from dynconv.lab.experiments.command import ablate
from dynconv.lab.experiments.config import listing

__all__ = ["ablate", "listing"]
