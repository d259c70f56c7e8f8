"""The control of lesson 08: two laws of DropConnect, in small and in large batches."""

from typing import Any

import torch

from dynconv.teach.controls.control import Control, run_definitions


def dropconnect() -> dict[str, Any]:
    """Return held-out bits per letter of lesson 08's models, in small and in large batches.

    Each is the mean of the last five points of a curve, for six seeds.
    """
    torch.set_default_dtype(torch.float64)  # as in the lesson
    names = run_definitions("08_dropconnect", "ALPHABET", "LAWS", "SHAPES", "training", "held_out")

    def bits(law: str, seed: int, passages: int) -> float:
        costs, _ = names["fit"](law, seed, passages=passages)
        return round(costs[-5:].mean().item(), 3)

    numbers = {
        f"{passages} passages, {law}": [bits(law, seed, passages) for seed in range(6)]
        for passages in (8, 64)
        for law in ("shared", "fresh")
    }
    torch.set_default_dtype(torch.float32)
    return numbers


CONTROLS = {
    "controls-dropconnect": Control(
        "Bits per letter of lesson 08's models under two laws, in batches of 8 and 64 passages",
        [0, 1, 2, 3, 4, 5],
        dropconnect,
    ),
}
