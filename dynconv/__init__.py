"""Convolutions that compete with self-attention, from the equation to training."""
