"""The controls of lesson 23: what a warm-up gives the model, and what it gives Adam."""

from functools import partial
from typing import Any

from dynconv.teach.controls.control import Control, run_definitions

WARMED = {
    "untrained model, new Adam, peak 0.015": (False, False, 0.015),
    "untrained model, new Adam, peak 0.02": (False, False, 0.02),
    "warmed-up model, new Adam, peak 0.015": (True, False, 0.015),
    "warmed-up model, new Adam, peak 0.02": (True, False, 0.02),
    "warmed-up model, kept Adam, peak 0.02": (True, True, 0.02),
}
"""whether the model has been warmed up, whether Adam is kept, and the peak of the rate"""
DESCENTS = {
    "peak 0.3, warm-up": (0.3, 60),
    "peak 0.3, no warm-up": (0.3, 0),
    "peak 0.6, warm-up": (0.6, 60),
    "peak 0.6, no warm-up": (0.6, 0),
}
"""the peak of the rate, and the updates of the warm-up"""


def recipe() -> dict[str, Any]:
    """Return after how many updates lesson 23's models know the form, and their last losses.

    They know it at the first loss below 1.8. A fresh m starts at 0, and the rate is divided by
    what Adam's count of 60 earlier updates leaves out of its divisor.
    """
    names = run_definitions("23_recipe", "EINS", "ZEHN", "ONE", "TEN", "FIXED", "WORDS")
    update, rate = names["make_updates"], names["no_warmup"]

    def losses(filled: str, seed: int) -> list[float]:
        model = names["new_model"](seed)
        optimizer = names["adam"](model)
        if filled:
            update(model, optimizer, lambda u: 0.0, seed, -60, 0)
        if filled != "v":
            return update(model, optimizer, rate, seed, 0, 120)
        for state in optimizer.state.values():
            state["exp_avg"].zero_()  # m
        return update(model, optimizer, lambda u: rate(u) / (1 - 0.9 ** (u + 1)), seed, 0, 120)

    numbers: dict[str, Any] = {}
    for filled, what in (("", "nothing"), ("v", "v"), ("mv", "m and v")):
        runs = [losses(filled, seed) for seed in (1, 2, 3)]
        numbers[f"filled {what}"] = {
            "updates": [next((u for u, x in enumerate(run) if x < 1.8), None) for run in runs],
            "last losses": [round(sum(run[-10:]) / 10, 2) for run in runs],
        }
    return numbers


def warmup() -> dict[str, Any]:
    """Return the last losses of lesson 23's models that get a rate without a warm-up.

    For two peaks, of untrained models and of models that have had 40 updates of the warm-up, with
    a new Adam or with the one that the model has been warmed up with. Every model gets 160 updates
    in all, and its rate falls along a cosine from the peak to 0.
    """
    names = run_definitions("23_recipe", "EINS", "ZEHN", "ONE", "TEN", "FIXED", "WORDS")
    update, rate = names["make_updates"], names["cosine_rate"]

    def loss(warmed: bool, kept: bool, peak: float, seed: int) -> float:
        model = names["new_model"](seed)
        optimizer = names["adam"](model)
        start = 40 if warmed else 0
        update(model, optimizer, rate, seed, 0, start)
        if not kept:
            optimizer = names["adam"](model)

        def falling(u: int) -> float:
            return float(rate(u - start, peak=peak, warmup=0, updates=160 - start))

        losses = update(model, optimizer, falling, seed, start, 160)
        return round(sum(losses[-10:]) / 10, 2)

    return {what: [loss(*how, seed) for seed in (1, 2, 3)] for what, how in WARMED.items()}


def gradient_descent() -> dict[str, Any]:
    """Return the share of digits that lesson 23's models get right after gradient descent.

    There are shares for two peaks, with a warm-up and without one.
    """
    names = run_definitions("23_recipe", "EINS", "ZEHN", "ONE", "TEN", "FIXED", "WORDS")

    def share(peak: float, warmup: int, seed: int) -> float:
        model = names["new_model"](seed)
        rate = partial(names["cosine_rate"], peak=peak, warmup=warmup)
        names["full_run"](model, seed, make=names["descent"], rate=rate)
        return round(names["digits_right"](model), 2)

    return {
        what: [share(*how, seed) for seed in (1, 2, 3, 4, 5, 6)] for what, how in DESCENTS.items()
    }


CONTROLS = {
    "controls-recipe": Control(
        "Updates until lesson 23's models know the form of a sentence, and losses at the end",
        [1, 2, 3],
        recipe,
    ),
    "controls-warmup": Control(
        "Last losses of lesson 23's models at rates without a warm-up, by what had one; all get "
        "160 updates, 40 of which are the warm-up, if there is one",
        [1, 2, 3],
        warmup,
    ),
    "controls-descent": Control(
        "Share of digits that lesson 23's models get right after gradient descent with momentum",
        [1, 2, 3, 4, 5, 6],
        gradient_descent,
    ),
}
