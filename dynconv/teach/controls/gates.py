"""The control of lesson 05: two designs of a gate, for other updates and rates."""

from typing import Any

from dynconv.teach.controls.control import Control, run_definitions


def gates() -> dict[str, Any]:
    """Return the losses of two designs of lesson 05 for other updates and rates."""
    names = run_definitions("05_gates", "HALF", "DESIGNS", "text", "letters", "code")
    designs, train = names["DESIGNS"], names["train_letters"]

    def losses(name: str, **settings: Any) -> list[float]:
        return [round(train(*designs[name], seed, **settings), 2) for seed in range(3)]

    return {
        f"{name}, {updates} updates, rate {rate}": losses(name, updates=updates, rate=rate)
        for updates, rate in ((60, 0.003), (60, 0.001), (60, 0.009), (240, 0.003))
        for name in ("both changes", "as published")
    }


CONTROLS = {
    "controls-gates": Control(
        "Losses in nats of lesson 05's models for other numbers of updates and other rates",
        [0, 1, 2],
        gates,
    ),
}
