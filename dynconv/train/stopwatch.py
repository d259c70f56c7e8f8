"""Measures where training spends its time and memory."""

import time
from collections import defaultdict
from collections.abc import Callable

WARMUP_UPDATES = 10
"""first updates, which are slower: memory grows, kernels are compiled"""
COMPUTE_LAPS = ("forward", "backward", "optimizer")
LAPS = ("data", *COMPUTE_LAPS, "log")
"""the laps of every update"""


class Stopwatch:
    """Times the training loop: `lap(name)` adds the time since the previous lap to that name."""

    def __init__(
        self,
        synchronize: Callable[[], object] = lambda: None,
        clock: Callable[[], float] = time.perf_counter,
    ):
        """Start at the time of `clock`, in seconds.

        `synchronize` waits until the device is idle; without it, a GPU's time is counted in the lap
        that reads its result.
        """
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.updates = self.validations = 0
        self._synchronize, self._clock = synchronize, clock
        self._last = clock()
        self.warmup_seconds: dict[str, float] = {}
        """`seconds` as they were after WARMUP_UPDATES updates"""

    def lap(self, name: str) -> None:
        self._synchronize()
        now = self._clock()
        self.seconds[name] += now - self._last
        self._last = now

    def count_update(self) -> None:
        """Count one more update."""
        self.updates += 1
        if self.updates == WARMUP_UPDATES:
            self.warmup_seconds = {name: self.seconds[name] for name in LAPS}

    def count_validation(self) -> None:
        """Count one more validation."""
        self.validations += 1

    @property
    def training_seconds(self) -> float:
        """The seconds of updates, data and log, without validations and checkpoints."""
        return sum(self.seconds[name] for name in LAPS)

    def seconds_left(self, updates: int, validations: int) -> float | None:
        """Return the seconds that this many updates and validations will take.

        None if it is too early to tell. Before the first validation, validations count as zero
        seconds.
        """
        if self.updates <= WARMUP_UPDATES:
            return None
        measured = sum(self.seconds[name] - self.warmup_seconds[name] for name in LAPS)
        per_update = measured / (self.updates - WARMUP_UPDATES)
        pauses = self.seconds["validate"] + self.seconds["save"]
        per_validation = pauses / max(self.validations, 1)
        return updates * per_update + validations * per_validation

    @property
    def overhead(self) -> float:
        """The time of data, log and checkpoints as a fraction of the updates' time."""
        added = sum(self.seconds[name] for name in ("data", "log", "save"))
        return added / sum(self.seconds[name] for name in COMPUTE_LAPS)


def format_seconds(seconds: float) -> str:
    """Return seconds as 1:02:03."""
    from tqdm import tqdm

    return tqdm.format_interval(seconds)
