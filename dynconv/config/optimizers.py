"""The optimizers that recipes can name."""

from typing import Any, NamedTuple


class Optimizer(NamedTuple):
    """An optimizer: how to construct it, and which state it keeps."""

    class_name: str
    """name in torch.optim"""
    constants: dict[str, Any]
    """arguments that are the same for all recipes"""
    options: tuple[str, ...]
    """arguments that recipes set in `train`, in addition to lr and weight_decay"""
    moments: tuple[str, ...]
    """keys of its state for tensors of the parameter's shape"""
    scalars: tuple[str, ...]
    """keys of its state for scalars"""
    moments_in_words: str


OPTIMIZERS = {
    "adamw": Optimizer(
        class_name="AdamW",
        constants={"fused": True},
        options=("betas", "eps"),
        moments=("exp_avg", "exp_avg_sq"),
        scalars=("step",),
        moments_in_words="AdamW's two moments",
    ),
    "nag": Optimizer(
        class_name="SGD",
        constants={"nesterov": True, "fused": True},
        options=("momentum",),
        moments=("momentum_buffer",),
        scalars=(),
        moments_in_words="the velocity",
    ),
}
