"""The control of lesson 07: loud mixers with other norms, at other places, and for longer."""

from typing import Any

from torch import nn

from dynconv.layers import DynamicConv, LightConv
from dynconv.teach.controls.control import Control, run_definitions

MIXERS = (LightConv, DynamicConv)
PLACES = (
    (30, 0.1, 0.1, 0.1),
    (0.1, 0.1, 0.1, 30),
    (30, 30, 0.1, 0.1),
    (30, 0.1, 30, 0.1),
    (0.1, 0.1, 30, 30),
)
"""how loud the four mixers of a model start, from the bottom"""


def softmax() -> dict[str, Any]:
    """Return bits per letter of lesson 07's models with free weights, or as the name says."""
    names = run_definitions("07_softmax", "novels")
    stack: Any = names["LetterStack"]

    class LastNorm(stack):
        """A LetterStack whose only norm is in front of the output layer."""

        def __init__(self, *options: Any, **more: Any) -> None:
            super().__init__(*options, **more)
            self.last = nn.LayerNorm(32)

    def bits(*options: Any, **more: Any) -> list[float]:
        return [round(names["fit"](*options, seed=seed, **more)[1], 3) for seed in range(3)]

    numbers = {}
    for mixer in MIXERS:
        what = mixer.__name__
        numbers[f"{what}, pre-norm, all times 30"] = bits(mixer, "none", "pre", loud=30)
        for loud in PLACES:
            volumes = ", ".join(map(str, loud))
            numbers[f"{what}, post-norm, times {volumes}"] = bits(mixer, "none", "post", loud=loud)
    numbers |= {
        f"DynamicConv, post-norm, {kind}": bits(DynamicConv, kind, "post")
        for kind in ("none", "softmax")
    }
    numbers |= {
        "DynamicConv, post-norm, 210 updates": bits(DynamicConv, "none", "post", steps=210),
        "LightConv, post-norm, all times 10, 210 updates": bits(
            LightConv, "none", "post", loud=10, steps=210
        ),
    }
    names["LetterStack"] = LastNorm
    numbers["DynamicConv, one norm, in front of the output layer"] = bits(DynamicConv, "none")
    return numbers


CONTROLS = {
    "controls-softmax": Control(
        "Bits per letter of lesson 07's models, other settings",
        [0, 1, 2],
        softmax,
    ),
}
