"""Drops the sizes that no mixer of a stack takes, before the tree becomes a recipe.

`kernel_size`, `reach` and `window` each belong to some mixers (`SIZE_KEYS`).
"""

from typing import Any

from dynconv.config.stack import StackConfig
from dynconv.config.tree import Tree
from dynconv.models.mixers import MIXERS, SIZE_KEYS


def drop_inherited_sizes(tree: Tree, stated_keys: set[str]) -> None:
    """Drop each kernel_size, reach or window that no mixer uses, unless its key is stated.

    This happens, for example, when attention replaces a convolution.
    """
    for stack, key in find_stacks(tree):
        for size in SIZE_KEYS:
            stated = any(f"{k}.".startswith(f"{key}.{size}.") for k in stated_keys)
            if size in stack and not stated and "mixer" in stack:
                stack[size] = drop_untaken_size(stack, size, stack[size])


def find_stacks(tree: Tree) -> list[tuple[Tree, str]]:
    """Return the encoder's and the decoder's trees, each with its key in the recipe."""
    model = tree.get("model")
    if not isinstance(model, dict):
        return []
    sides = (side for side in ("encoder", "decoder") if isinstance(model.get(side), dict))
    return [(model[side], f"model.{side}") for side in sides]


def drop_untaken_size(stack: Tree, size: str, value: Any) -> Any:
    """Return `value`, one size or one per layer, with None for layers whose mixer has none.

    size  kernel_size, reach or window
    """
    mixers = stack.get("mixer", StackConfig.mixer)
    layers = mixers if isinstance(mixers, list) else [mixers]
    taken = [m in MIXERS and MIXERS[m].size_key == size for m in map(str, layers)]
    if mixers is layers and isinstance(value, list) and len(value) == len(layers):
        value = [v if takes else None for v, takes in zip(value, taken, strict=True)]
        return value if any(v is not None for v in value) else None
    return value if any(taken) else None  # StackConfig refuses a list of another length
