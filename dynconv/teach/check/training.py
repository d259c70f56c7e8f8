"""The check of the exercise on schedules."""

import math
from collections.abc import Callable

Schedule = Callable[[int, float, float, int, int, int], float]

CASES = [  # lr, lr_end, warmup, period, grow
    (1.0, 0.0, 0, 8, 1),
    (1.0, 0.2, 4, 10, 1),
    (3e-3, 1e-4, 5, 6, 2),
    (1.0, 0.1, 3, 4, 3),
]
POINTS = [(done, *case) for case in CASES for done in range(60)]


def _cosine(lr: float, lr_end: float, p: float) -> float:
    return lr_end + (lr - lr_end) * (1 + math.cos(math.pi * p)) / 2


def _again_and_again(done, lr, lr_end, warmup, period, grow):
    length = warmup + period
    while done >= length:
        done, length, period = done - length, warmup + period * grow, period * grow
    return _restarts(done, lr, lr_end, warmup, period, grow)


def _varied(
    warm=lambda done, lr, lr_end, warmup: lr * done / warmup,
    ends=lambda done, period: done >= period,
    rate=lambda done, lr, lr_end, period: _cosine(lr, lr_end, done / period),
) -> Schedule:
    def schedule(done, lr, lr_end, warmup, period, grow):
        if done < warmup:
            return warm(done, lr, lr_end, warmup)
        done -= warmup
        while ends(done, period):
            done, period = done - period, period * grow
        return rate(done, lr, lr_end, period)

    return schedule


_restarts = _varied()


def _after_warmup(p: Callable[[int, int, int], float]) -> Schedule:
    def schedule(done, lr, lr_end, warmup, period, grow):
        return lr * done / warmup if done < warmup else _cosine(lr, lr_end, p(done, warmup, period))

    return schedule


FAULTS: list[tuple[str, Schedule]] = [
    ("no cycle follows the first", _after_warmup(lambda u, w, d: (u - w) / d)),
    ("no cycle follows the first", _after_warmup(lambda u, w, d: min((u - w) / d, 1.0))),
    ("a cycle ends one update late", _varied(ends=lambda u, d: u > d)),
    (
        "lr_end belongs to the update after a cycle's last",
        _varied(rate=lambda u, lr, end, d: _cosine(lr, end, u / (d - 1))),
    ),
    (
        "1 + cos goes up to 2: half of it is missing",
        _varied(rate=lambda u, lr, end, d: end + 2 * (_cosine(lr, end, u / d) - end)),
    ),
    (
        "the warm-up begins at 0, not at lr / warmup",
        _varied(warm=lambda u, lr, end, w: lr * (u + 1) / w),
    ),
    (
        "the warm-up begins at 0, not at lr_end",
        _varied(warm=lambda u, lr, end, w: end + (lr - end) * u / w),
    ),
    ("every cycle is as long as the first", lambda u, *a: _restarts(u, *a[:4], 1)),
    ("the lowest rate is 0, not lr_end", lambda u, lr, _, *a: _restarts(u, lr, 0.0, *a)),
    ("it is the rate of the update after", lambda u, *a: _restarts(u + 1, *a)),
    ("there is no warm-up", lambda u, lr, end, w, *a: _restarts(u, lr, end, 0, *a)),
    ("every cycle has a warm-up, not only the first", _again_and_again),
    (
        "the first cycle began before the end of the warm-up",
        lambda u, lr, end, w, *a: lr * u / w if u < w else _restarts(u, lr, end, 0, *a),
    ),
]


def schedule(mine: Schedule) -> None:
    """mine(done, lr, lr_end, warmup, period, grow) is the rate of the update that follows `done`:
    linear from 0 to lr in `warmup` updates, then half a cosine from lr towards lr_end in `period`
    updates, which begins again at lr, each time `grow` times as long."""
    found = [_number(mine(*point), point[0]) for point in POINTS]
    for point, rate in zip(POINTS, found, strict=True):
        right = _restarts(*point)
        if not math.isclose(rate, right, rel_tol=1e-6, abs_tol=1e-12):
            names = ("lr", "lr_end", "warmup", "period", "grow")
            case = ", ".join(f"{name} {x:g}" for name, x in zip(names, point[1:], strict=True))
            raise AssertionError(
                f"at done = {point[0]} ({case}): {rate:.4g}, not {right:.4g}{_why(found)}"
            )
    print(f"right: {len(POINTS)} rates of {len(CASES)} schedules")


def _number(rate, done: int) -> float:
    try:
        return float(rate)
    except (TypeError, ValueError):
        raise AssertionError(
            f"at done = {done} it returns a {type(rate).__name__}, not a number"
        ) from None


def _why(found: list[float]) -> str:
    """The fault that gives just these rates."""
    for why, wrong in FAULTS:
        pairs = zip(found, (wrong(*point) for point in POINTS), strict=True)
        if all(math.isclose(*pair, rel_tol=1e-6, abs_tol=1e-12) for pair in pairs):
            return f": {why}"
    return ""
