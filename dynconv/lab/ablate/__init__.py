"""Experiments: the rows of a table, each trained with several seeds, by one resumable command."""

from dynconv.lab.ablate.ablate import ablate

__all__ = ["ablate"]
