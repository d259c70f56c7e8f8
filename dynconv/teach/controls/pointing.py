"""The control of lesson 34: one layer of DynamicConv that looks up pairs, and two of attention."""

from typing import Any

from dynconv.teach.controls.control import Control, run_definitions

STACKS = (
    (("attention", "attention"), 4, 150),
    (("attention", "attention"), 4, 400),
    (("dynamic",), 4, 400),
    (("dynamic",), 1, 2000),
    (("dynamic",), 4, 2000),
)
"""mixers from bottom to top, heads and updates"""


def describe_stack(mixers: tuple[str, ...], heads: int, updates: int) -> str:
    """Return the name of a stack in the record: "dynamic, 4 heads, 400 updates"."""
    return f"{'+'.join(mixers)}, {heads} head{'s' * (heads > 1)}, {updates:,} updates"


def pointing() -> dict[str, Any]:
    """Return the share of four pairs that lesson 34's stacks recall in random order, per seed."""
    learn = run_definitions("34_which")["learn_to_recall"]
    return {
        describe_stack(mixers, heads, updates): [
            round(learn(mixers, heads, updates, seed=seed), 3) for seed in (1, 2, 3)
        ]
        for mixers, heads, updates in STACKS
    }


CONTROLS = {
    "controls-pointing": Control(
        "Share of four pairs that lesson 34's stacks recall in random order, after more updates",
        [1, 2, 3],
        pointing,
    ),
}
