"""The control of lesson 33: layers with a fixed and with a chosen decay."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from dynconv.teach.controls.control import Control, run_definitions


class DeltaReader(nn.Module):
    """x (B, T, 2): value, mark -> answers (B, T), by a state of N numbers that writes the values.

    At each word the state may fade, by one factor, and the word may subtract what it finds under
    its key, as in the delta rule. Key, query, strength and factor come from the word alone.
    """

    def __init__(self, fades: bool, subtracts: bool, N: int = 4) -> None:
        super().__init__()
        self.fades, self.subtracts = fades, subtracts
        self.to_kq, self.to_keep_and_beta = nn.Linear(2, 2 * N), nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        k, q = self.to_kq(x).chunk(2, dim=2)
        k = F.normalize(k, dim=2)
        keep, beta = self.to_keep_and_beta(x).sigmoid()[..., None].unbind(dim=2)
        z, rows = torch.zeros_like(k[:, 0]), []
        for t in range(x.shape[1]):
            if self.fades:
                z = keep[:, t] * z
            found = (k[:, t] * z).sum(dim=1, keepdim=True) if self.subtracts else 0
            z = z + beta[:, t] * k[:, t] * (x[:, t, :1] - found)
            rows.append((q[:, t] * z).sum(dim=1))
        return torch.stack(rows, dim=1)


def forgetting() -> dict[str, Any]:
    """Return the scores of lesson 33's layers, and of the word that counts, for three seeds."""
    names = run_definitions("33_forgetting")
    Reader, teach, deal = (names[name] for name in ("Reader", "teach_reader", "deal"))
    numbers: dict[str, Any] = {}

    def train(what: str, build: Callable[[], nn.Module], late: int) -> list[nn.Module]:
        readers = [teach(build, late, seed) for seed in range(3)]
        errors = [names["error"](reader, late, 2000, 99_999).item() for reader in readers]
        numbers[what] = [round(1 - each, 3) for each in errors]
        return readers

    for late, task in enumerate(("the marked word", "the word after the mark")):
        for conv, width in ((False, "no convolution"), (True, "convolution of 4")):
            for chosen, decay in ((False, "fixed"), (True, "chosen")):
                what = f"{task}, {width}, decay {decay}"
                readers = train(what, partial(Reader, chosen, conv), late)
                if late and chosen and not conv:
                    alone = readers
    train("the word after the mark, two layers, decay chosen", names["Stack"], 1)
    for what, fades, subtracts in (
        ("one factor", True, False),
        ("delta rule", False, True),
        ("delta rule and one factor", True, True),
    ):
        train(f"the word after the mark, {what}", partial(DeltaReader, fades, subtracts), 1)
    x, answers = deal(2000, 1, 7)
    values, marks = x.unbind(dim=2)
    counts = (marks == 0) & (answers == torch.arange(64))
    numbers["the word that counts itself"] = [
        round(1 - (reader(x) - values)[counts].square().mean().item(), 3) for reader in alone
    ]
    return numbers


CONTROLS = {
    "controls-forgetting": Control(
        "Scores of lesson 33's layers: 1 minus the mean squared error",
        [0, 1, 2],
        forgetting,
    ),
}
