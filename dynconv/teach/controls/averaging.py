"""The controls of lesson 13: encoders that average, with and without attention."""

from typing import Any

from torch import Tensor, nn

from dynconv.layers import DynamicConv, LightConv
from dynconv.teach.controls.control import Control, run_definitions

SIDES = (
    ("DynamicConv", "DynamicConv"),
    ("DynamicConv", "average"),
    ("average", "DynamicConv"),
    ("nothing", "DynamicConv"),
)
"""encoders and decoders"""


def averaging(steps: int = 800, seeds: int = 2, sides: Any = SIDES) -> dict[str, Any]:
    """Return the share of vowels that lesson 13's models restore if decoders use attention."""
    names = run_definitions("13_averaging", "training")

    Restorer: Any = names["Restorer"]

    class Attending(Restorer):
        """A Restorer whose decoder reads its own position of the source and attends to all."""

        def __init__(self, encoder: str, decoder: str, C: int = 32) -> None:
            super().__init__(encoder, decoder, C)
            self.norm, self.memory_norm = nn.LayerNorm(C), nn.LayerNorm(C)
            self.attend = nn.MultiheadAttention(C, 4, batch_first=True)

        def forward(self, ids: Tensor) -> Tensor:
            place, decoder = self.place.weight, self.decoder
            memory = self.embed(ids.masked_fill(names["is_vowel"](ids), 27)) + place
            if self.encoder is not None:
                memory = self.encoder(memory)
            before = nn.functional.pad(ids[:, :-1], (1, 0), value=28)
            x = self.embed(before) + place + memory
            x = x + decoder.mixer(decoder.norm(x))
            keys = self.memory_norm(memory)
            x = x + self.attend(self.norm(x), keys, keys, need_weights=False)[0]
            return self.predict(x + decoder.network(x))

    names["Restorer"] = Attending
    return {
        f"{encoder} -> {decoder}": [
            round(names["restored"](names["fitted"](encoder, decoder, seed, steps)), 3)
            for seed in range(seeds)
        ]
        for encoder, decoder in sides
    }


def averaging_long() -> dict[str, Any]:
    """Return the share that they restore after three times as many steps, with one seed."""
    return averaging(2400, 1, (SIDES[0], *SIDES[2:]))


def averaging_alone() -> dict[str, Any]:
    """Return the share restored without attention, by no encoder and by a mean of all letters."""
    names = run_definitions("13_averaging", "training")

    def share(encoder: str, steps: int, seed: int) -> float:
        return round(names["restored"](names["fitted"](encoder, "DynamicConv", seed, steps)), 3)

    numbers = {
        "800 steps": [share("nothing", 800, 0), share("nothing", 800, 1)],
        "2,400 steps": [share("nothing", 2400, 0)],
    }
    # 63 taps reach all 32 letters from everywhere.
    names["LightConv"] = lambda channels, heads, _: LightConv(channels, heads, 63)
    numbers["mean of 63, 200 steps"] = [share("mean of 3", 200, seed) for seed in range(2)]
    return numbers


def averaging_widths() -> dict[str, Any]:
    """Return the share restored by encoders of 3 and of 7 letters with three kinds of weights.

    Each share is measured after 200 and after 800 updates.
    """
    names = run_definitions("13_averaging", "training")

    def share(kind: str, width: int, seed: int, steps: int) -> float:
        def mixer(channels: int, heads: int, K: int, causal: bool) -> nn.Module:
            if causal or kind == "DynamicConv":
                return DynamicConv(channels, heads, K if causal else width, causal=causal)
            layer = LightConv(channels, heads, width)
            if kind == "equal":
                nn.init.zeros_(layer.weight)
                layer.weight.requires_grad_(False)
            return layer

        names["DynamicConv"] = mixer
        model = names["fitted"]("DynamicConv", "DynamicConv", seed, steps)
        return round(names["restored"](model), 3)

    return {
        f"{kind}, {width} letters" + (", 800 updates" if steps == 800 else ""): [
            share(kind, width, seed, steps) for seed in range(3)
        ]
        for steps in (200, 800)
        for width in (3, 7)
        for kind in ("equal", "LightConv", "DynamicConv")
    }


CONTROLS = {
    "controls-averaging": Control(
        "Share of vowels restored by lesson 13's models whose decoders attend, in 800 steps",
        [0, 1],
        averaging,
    ),
    "controls-averaging-alone": Control(
        "Share of vowels restored by lesson 13's models without attention, other settings",
        [0, 1],
        averaging_alone,
    ),
    "controls-averaging-long": Control(
        "Share of vowels restored by lesson 13's models whose decoders attend, in 2,400 steps",
        [0],
        averaging_long,
    ),
    "controls-averaging-widths": Control(
        "Share of vowels restored by lesson 13's models, by weights and width of the encoder",
        [0, 1, 2],
        averaging_widths,
    ),
}
