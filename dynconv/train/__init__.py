"""`train` runs a recipe in a run directory; `load_model` loads the trained model from it."""

from dynconv.train.loop import train
from dynconv.train.trained import TrainedModel, load_model

__all__ = ["TrainedModel", "load_model", "train"]
