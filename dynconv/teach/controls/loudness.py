"""The control of lesson 17: loud layers at other learning rates, reaches and depths."""

from collections.abc import Iterable
from typing import Any

from dynconv.teach.controls.control import Control, run_definitions

RATES = (0.003, 0.01, 0.02, 0.03, 0.05)
UNDONE: dict[str, dict[str, Any]] = {
    "small start": {"start": 2},
    "short steps": {"step": 2},
    "pre-norm": {"pre_norm": True},
}
"""what is changed in the undivided models with a reach of 1"""


def loud_layers() -> dict[str, Any]:
    """Return the updates that lesson 17's models need to learn, None if 300 are too few."""
    names = run_definitions("17_talk")

    def needed(seeds: Iterable[int] = range(6), /, **how: Any) -> list[int | None]:
        runs = [names["copy_losses"](seed, **how) for seed in seeds]
        return [len(losses) if len(losses) < 300 else None for losses in runs]

    divided = {
        "divided": {"divide_by_max_length": True},
        "not divided": {"divide_by_max_length": False},
    }
    numbers = {
        f"{name}, reach {reach}, rate {rate}": needed(reach=reach, rate=rate, **how)
        for reach in (15, 1)
        for rate in RATES
        for name, how in divided.items()
    }
    for rate in (0.01, 0.02):
        for name, how in divided.items():
            what = f"{name}, reach 1, rate {rate}, 7 blocks"
            numbers[what] = needed(reach=1, rate=rate, depth=7, **how)
    for name, how in UNDONE.items():
        what = f"not divided, reach 1, rate 0.03, {name}"
        numbers[what] = needed(reach=1, rate=0.03, divide_by_max_length=False, **how)
    for name in ("nothing", "small start", "short steps"):
        what = f"not divided, reach 1, rate 0.03, {name}, seeds 6 to 13"
        how = UNDONE.get(name, {})
        numbers[what] = needed(range(6, 14), reach=1, rate=0.03, divide_by_max_length=False, **how)
    return numbers


CONTROLS = {
    "controls-loudness": Control(
        "Updates until lesson 17's models copy the previous word, for other rates, reaches and "
        "depths; null where 300 are too few",
        [0, 1, 2, 3, 4, 5],
        loud_layers,
    ),
}
