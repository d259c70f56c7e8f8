"""Training: loss, schedule, loop, checkpoints, log."""

from dynconv.train.loop import train
from dynconv.train.loss import label_smoothed_loss
from dynconv.train.run import Trained, load_model
from dynconv.train.schedule import learning_rate

__all__ = ["Trained", "label_smoothed_loss", "learning_rate", "load_model", "train"]
