"""`dynconv experiment`: trains every row with several seeds, and can be resumed."""

from dynconv.lab.experiment.loop import run_experiment

__all__ = ["run_experiment"]
