"""The check of the exercise on how many seeds a difference needs."""

from collections.abc import Callable
from math import ceil
from statistics import NormalDist
from typing import NamedTuple


class _Way(NamedTuple):
    """One way to count seeds; the defaults are the right one."""

    recipes: int = 2
    """whose means scatter; 1 forgets one of them"""
    sign: int = 1
    """of z_power"""
    sides: int = 2
    square: int = 2
    power: float | None = None
    """asked for, whatever the power that is given"""
    sum_of_squares: bool = False
    whole: Callable[[float], float] = ceil
    least: int = 2


FAULTS = {
    "the factor 2 is missing; both means scatter": {"recipes": 1},
    "the 5% lie on one side; z_0.975 leaves 2.5% on each": {"sides": 1},
    "the power is not used; half of the experiments would miss the difference": {"power": 0.5},
    "the power is taken as 0.8, whatever is asked for": {"power": 0.8},
    "sigma / delta is not squared": {"square": 1},
    "sigma / delta is upside down": {"square": -2},
    "z_power is subtracted, or is that of 1 - power; add it": {"sign": -1},
    "z_0.975 and z_power are squared one by one; add them first": {"sum_of_squares": True},
    "not rounded up; n has to be at least as large as the right side": {"whole": int},
    "not a whole number; round up": {"whole": float},
    "one seed has no deviation; two at least": {"least": 1},
    "these are the seeds of both recipes; n is of each": {"whole": lambda n: 2 * ceil(n)},
}

CASES = [(0.05, 0.36, 0.9), (0.3, 0.36, 0.8), (0.1, 0.36, 0.8), (0.5, 0.2, 0.95), (5.0, 0.1, 0.8)]


def seeds_needed(mine: Callable[[float, float, float], int]) -> None:
    """mine(delta, sigma, power) is the smallest n of equation (31.3) of the book, 2 at least."""
    for delta, sigma, power in CASES:
        case = f"delta {delta}, sigma {sigma}, power {power}: "
        got = mine(delta, sigma, power)
        got = got.item() if hasattr(got, "item") else got  # of NumPy or PyTorch
        if not isinstance(got, (int, float)):
            raise AssertionError(case + f"it returns {got!r}, not a number")
        right = _seeds(delta, sigma, power, _Way())
        if got != right:
            ways = ((why, _seeds(delta, sigma, power, _Way(**way))) for why, way in FAULTS.items())
            why = next((f": {why}" for why, wrong in ways if abs(got - wrong) < 1e-6), "")
            raise AssertionError(case + f"mine {got:.6g}, theirs {right}{why}")
    print(f"right: {len(CASES)} cases, of {_seeds(*CASES[-1], _Way())} seeds and more")


def _seeds(delta: float, sigma: float, power: float, way: _Way) -> float:
    z = NormalDist().inv_cdf
    false, true = z(1 - 0.05 / way.sides), way.sign * z(way.power or power)
    both = false**2 + true**2 if way.sum_of_squares else (false + true) ** 2
    return max(way.least, way.whole(way.recipes * both * (sigma / delta) ** way.square))
