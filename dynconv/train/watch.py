"""Where the time of a run goes, and how much it still needs."""

import time
from collections import defaultdict
from collections.abc import Callable

WARM = 10
"""first updates that say nothing: memory grows, kernels are compiled"""
UPDATE = ("forward", "backward", "optimizer")
EACH = ("data", *UPDATE, "log")
"""the laps of every update"""


class Watch:
    """Laps of the training loop: `lap(name)` adds the time since the last lap to that name."""

    def __init__(self, finish: Callable[[], object] = lambda: None):
        """`finish` waits for what the device is still doing; without it a GPU's time appears in
        the lap that reads its result."""
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.updates = self.validations = 0
        self._finish = finish
        self._last = time.perf_counter()
        self.warm: dict[str, float] = {}
        """the seconds after WARM updates"""

    def lap(self, name: str) -> None:
        self._finish()
        now = time.perf_counter()
        self.seconds[name] += now - self._last
        self._last = now

    def update(self) -> None:
        """One more update is done."""
        self.updates += 1
        if self.updates == WARM:
            self.warm = {name: self.seconds[name] for name in EACH}

    @property
    def training(self) -> float:
        """Seconds of updates with their data and log, without validations and checkpoints."""
        return sum(self.seconds[name] for name in EACH)

    def left(self, updates: int, validations: int) -> float | None:
        """Seconds that so many updates and validations will take; None while it is too early.

        Before the first validation nothing is known of its cost: it counts for nothing.
        """
        if self.updates <= WARM:
            return None
        each = sum(self.seconds[name] - self.warm[name] for name in EACH) / (self.updates - WARM)
        pause = (self.seconds["validate"] + self.seconds["save"]) / max(self.validations, 1)
        return updates * each + validations * pause

    @property
    def overhead(self) -> float:
        """What the loop adds (data, log, checkpoints), as a share of computing the updates."""
        added = sum(self.seconds[name] for name in ("data", "log", "save"))
        return added / sum(self.seconds[name] for name in UPDATE)
