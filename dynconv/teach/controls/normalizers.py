"""The controls of lesson 12: the ten normalisations under other settings."""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from dynconv.layers import DynamicConv
from dynconv.teach.controls.control import Control, run_definitions

LOUD = ("none", "sigmoid", "tanh", "power2", "abs", "abs_l2")
"""normalisations whose kernels are large, so that training fails"""


class Released(DynamicConv):
    """DynamicConv with scores that start as in the Python class of fairseq."""

    def __init__(self, *sizes: int, **options: Any) -> None:
        super().__init__(*sizes, **options)
        self.kernel_proj.reset_parameters()  # uniform, up to 1 / sqrt(C)


def normalizers() -> dict[str, Any]:
    """Return bits per letter of the models of lesson 12 under other settings."""
    names = run_definitions("12_normalizers", "TEN", "training")
    ten, times, fit, fresh = (names[name] for name in ("TEN", "times", "fit", "fresh"))

    def bits(f: Callable[[Tensor], Tensor], **settings: Any) -> float:
        return round(names["bits_on_validation"](fit(f, **settings)), 3)

    def seeds(f: Callable[[Tensor], Tensor], **settings: Any) -> list[float]:
        return [bits(f, seed=seed, **settings) for seed in range(3)]

    loud = {kind: ten[kind] for kind in LOUD}
    quiet = {kind: times(0.1, f) for kind, f in loud.items()}
    off = times(0, ten["softmax"])
    numbers: dict[str, Any] = {
        "rates": {str(lr): {k: bits(f, lr=lr) for k, f in ten.items()} for lr in (0.003, 0.03)},
        "mixers off": seeds(off),
        "mixers off, pre-norm": seeds(off, norm="pre"),
        "mixers off, 200 steps": bits(off, steps=200),
        "times 0.1, 200 steps": {kind: bits(f, steps=200) for kind, f in quiet.items()},
        "200 steps": {kind: bits(f, steps=200) for kind, f in loud.items()},
        "quiet start": {kind: seeds(f, start=0.1) for kind, f in loud.items()},
        "shortcut": {kind: seeds(ten[kind], shortcut=True) for kind in ("softmax", *LOUD)},
        "pre-norm": {kind: seeds(ten[kind], norm="pre") for kind in ("softmax", *LOUD)},
    }
    names["DynamicConv"] = Released
    numbers["default weights"] = {
        kind: {
            "share": round(fresh(f)[1], 4),
            "bits": [bits(f, seed=seed) for seed in range(2)],
        }
        for kind, f in ten.items()
    }
    return numbers


CONTROLS = {
    "controls-normalizers": Control(
        "Bits per letter of lesson 12's models, other settings",
        [0, 1, 2],
        normalizers,
    ),
}
