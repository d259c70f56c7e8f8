"""`train` runs a recipe in a run directory; `load_model` loads the trained model from it."""

from dynconv.tasks.translation import label_smoothed_loss
from dynconv.train.loop import train
from dynconv.train.trained import Trained, load_model
from dynconv.train.update import learning_rate

__all__ = ["Trained", "label_smoothed_loss", "learning_rate", "load_model", "train"]
