"""The control of lesson 06: kernels of the letter model, after longer training and in threes."""

from typing import Any

from dynconv.teach.controls.control import Control, run_definitions

LONG = ((4, 7), (32, 7), (32, 3))
"""numbers of kernels, and letters in the window, of the models that are trained longer"""
KERNELS = (3, 4, 8)
"""numbers of kernels that 24 channels share"""


def sharing() -> dict[str, Any]:
    """Return bits per letter of lesson 06's models after 800 steps, and with 24 channels."""
    names = run_definitions("06_sharing", "ALPHABET", "training")

    def bits(channels: int, kernels: int, places: int, seed: int, steps: int) -> float:
        shapes = [(27, channels), (kernels, places), (27, channels)]
        fitted = names["fit"](names["reader"], shapes, seed, steps)
        cost: float = names["bits"](names["reader"], fitted, names["validation"][None]).item()
        return round(cost, 3)

    longer = {
        f"{kernels} kernels, {places} letters, 800 steps": [
            bits(32, kernels, places, seed, 800) for seed in range(3)
        ]
        for kernels, places in LONG
    }
    narrow = {
        f"{kernels} kernels, 24 channels": [bits(24, kernels, 7, seed, 200) for seed in range(6)]
        for kernels in KERNELS
    }
    return longer | narrow


CONTROLS = {
    "controls-sharing": Control(
        "Bits per letter of lesson 06's models, for other steps and channels",
        [0, 1, 2, 3, 4, 5],
        sharing,
    ),
}
