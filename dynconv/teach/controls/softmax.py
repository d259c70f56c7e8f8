"""The controls of lesson 07: loud mixers in other settings, and several learning rates."""

from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from dynconv.layers import DynamicConv, LightConv
from dynconv.teach.controls.control import Control, run_definitions
from dynconv.teach.controls.normalizers import Released

MIXERS = (LightConv, DynamicConv)
PLACES = (
    (30, 0.1, 0.1, 0.1),
    (0.1, 0.1, 0.1, 30),
    (30, 30, 0.1, 0.1),
    (30, 0.1, 30, 0.1),
    (0.1, 0.1, 30, 30),
)
"""how loud the four mixers of a model start, from the bottom"""
RATES = (0.003, 0.01, 0.03)
"""the learning rates of the second control"""
STARTS = ((DynamicConv, 0.3), (LightConv, 2.5))
"""how loud two more free mixers start in it: one quieter than LightConv, one like DynamicConv"""


class NoSquare(DynamicConv):
    """DynamicConv whose scores ignore the size of their input, so that doubling it doubles y."""

    def logits(self, x: Tensor) -> Tensor:
        """Return the kernels (B, T, H, K) that x predicts after scaling to mean square 1."""
        return super().logits(x / x.square().mean(-1, keepdim=True).sqrt())


class PlusFixed(DynamicConv):
    """DynamicConv that adds a fixed random kernel to each predicted one, divided by sqrt(2).

    Both are about as loud as DynamicConv's kernels, and so is their sum.
    """

    def __init__(self, channels: int, heads: int, kernel_size: int, **options: Any) -> None:
        super().__init__(channels, heads, kernel_size, **options)
        self.register_buffer("fixed", torch.randn(heads, kernel_size))

    def logits(self, x: Tensor) -> Tensor:
        """Return kernels (B, T, H, K) with a part that is the same at every position."""
        return (super().logits(x) + self.fixed) / 2**0.5


class NoMixer(LightConv):
    """A mixer that adds nothing to the stream."""

    def forward(self, x: Tensor, pad_mask: Tensor | None = None) -> Tensor:
        return torch.zeros_like(x)


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
    louder = bits(LightConv, "none", "post", loud=10, steps=210)
    numbers["LightConv, post-norm, all times 10, 210 updates"] = louder
    names["LetterStack"] = LastNorm
    numbers["DynamicConv, one norm, in front of the output layer"] = bits(DynamicConv, "none")
    return numbers


def three_digits(factors: list[float]) -> float:
    """Return the product of the factors, the growth of the stream, to three digits."""
    return float(f"{prod(factors):.3g}")


def rates() -> dict[str, Any]:
    """Return bits per letter of three seeds, and the growth of the stream, per rate."""
    names = run_definitions("07_softmax", "novels")
    stack: Any = names["LetterStack"]
    models: list[Any] = []

    class KeptStack(stack):
        """A LetterStack that stays in `models`."""

        def __init__(self, *options: Any, **more: Any) -> None:
            super().__init__(*options, **more)
            models.append(self)

    names["LetterStack"] = KeptStack

    def trained(*options: Any, **more: Any) -> dict[str, list[float]]:
        runs = [names["fit"](*options, seed=seed, **more) for seed in range(3)]
        return {
            "bits": [round(bits, 3) for _, bits in runs],
            "growth in the first update": [three_digits(factors) for factors, _ in runs],
            "growth in the last update": [three_digits(model.factors) for model in models[-3:]],
        }

    numbers = {
        f"{mixer.__name__}, {kind}, {norm}-norm, rate {lr}": trained(mixer, kind, norm, lr=lr)
        for norm in ("post", "pre")
        for mixer in MIXERS
        for kind in ("none", "softmax")
        for lr in RATES
    }
    numbers |= {
        f"{mixer.__name__}, none, post-norm, times {loud}, rate {lr}": trained(
            mixer, "none", "post", loud=loud, lr=lr
        )
        for mixer, loud in STARTS
        for lr in RATES
    }
    numbers |= {
        f"DynamicConv, none, post-norm, default weights, rate {lr}": trained(
            Released, "none", "post", lr=lr
        )
        for lr in RATES
    }
    numbers |= {
        f"NoMixer, none, post-norm, rate {lr}": trained(NoMixer, "none", "post", lr=lr)
        for lr in RATES
    }
    numbers |= {
        f"LightConv, none, no norm, rate {lr}": trained(LightConv, "none", lr=lr)
        for lr in (*RATES, 0.1)
    }
    return numbers | {
        f"{mixer.__name__}, none, post-norm, times {loud}, rate 0.01, 210 updates": trained(
            mixer, "none", "post", loud=loud, steps=210
        )
        for mixer, loud in ((LightConv, 2.5), (DynamicConv, 1), (NoSquare, 1), (PlusFixed, 1))
    }


CONTROLS = {
    "controls-softmax": Control(
        "Bits per letter of lesson 07's models, other settings",
        [0, 1, 2],
        softmax,
    ),
    "controls-softmax-rates": Control(
        "Bits per letter of lesson 07's models at several learning rates",
        [0, 1, 2],
        rates,
    ),
}
