"""Experiments: the rows of a table, each trained with several seeds, by one resumable command."""

from dynconv.lab.experiments.command import ablate

__all__ = ["ablate"]
