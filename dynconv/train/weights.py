"""The weights of a model by name, as checkpoints contain them: read, compared, averaged."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from dynconv.dtypes import dtype_name
from dynconv.errors import UserError

Weights = dict[str, Tensor]


def named_weights(model: nn.Module) -> Weights:
    """Return parameters and persistent buffers by name, not copied; a shared one appears once."""
    names = {name for name, _ in (*model.named_parameters(), *model.named_buffers())}
    return {name: tensor for name, tensor in model.state_dict().items() if name in names}


def load_weights(model: nn.Module, weights: Weights, path: Path) -> None:
    """Copy the weights of a checkpoint, which `path` names in errors, into the model.

    Raises UserError if names, shapes or dtypes do not match.
    """
    tensors = named_weights(model)
    for name in tensors.keys() | weights.keys():
        there, here = shape_and_dtype(weights.get(name)), shape_and_dtype(tensors.get(name))
        if there != here:
            raise UserError(
                f"{path}: the checkpoint of another recipe: {name} is {there} in the checkpoint "
                f"and {here} in the model"
            )
    for name, tensor in tensors.items():
        tensor.copy_(weights[name])


def shape_and_dtype(value: Any) -> str:
    """Return the shape and dtype of a tensor, `(3, 4) float32`; the type of any other value."""
    if not isinstance(value, Tensor):
        return "missing" if value is None else type(value).__name__
    return f"{tuple(value.shape)} {dtype_name(value.dtype)}"


def average_weights(several: Iterable[Weights]) -> Weights:
    """Return the mean of several weights of the same model, which are read one after the other.

    Integers have no mean, so they are taken from the last weights.
    """
    count = 0
    total = Weights()
    for weights in several:
        count += 1
        for name, tensor in weights.items():
            total[name] = total[name] + tensor if name in total else tensor
    return {
        name: tensor / count if tensor.is_floating_point() else weights[name]
        for name, tensor in total.items()
    }
