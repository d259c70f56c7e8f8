"""Interactive figures: custom elements that show the reader's tensors and need no server.

Each class contains the data of one figure; the JavaScript file of the same name draws it.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from dynconv.lab.style import COLORS

FOLDER = Path(__file__).parent


class InteractiveFigure:
    """A figure for a notebook and its page in the book; `print` shows its data.

    The JavaScript file receives all attributes as JSON.
    """

    color = "currentColor"

    @property
    def data(self) -> dict[str, Any]:
        """All attributes, the colour last; tensors as nested lists with four decimals."""
        values = {
            name: round_values(value) if isinstance(value, Tensor) else value
            for name, value in vars(self).items()
        }
        return {**values, "color": self.color}

    def __repr__(self) -> str:
        given = ", ".join(f"{key}={value}" for key, value in self.data.items() if key != "color")
        return f"{type(self).__name__}({given})"

    def _repr_html_(self) -> str:
        name = type(self).__name__
        file = "".join(f"_{c.lower()}" if c.isupper() else c for c in name)[1:]
        tag = file.replace("_", "-")
        code = "\n".join((FOLDER / f"{part}.js").read_text("utf-8") for part in ("base", file))
        # A block, so that the second figure of a page may declare the same constants.
        define = f'customElements.get("{tag}") || customElements.define("{tag}", {name});'
        data = escape(json.dumps(self.data, ensure_ascii=False))
        return f'<script>{{\n{code}\n{define}\n}}</script>\n<{tag} data="{data}"></{tag}>'


def round_values(x: Tensor) -> list:
    """Return a tensor as nested lists with four decimals, so the text is the same everywhere."""
    text = json.dumps(x.detach().double().tolist())
    return json.loads(text, parse_float=lambda number: round(float(number), 4))


@dataclass(repr=False)
class SlidingWindow(InteractiveFigure):
    """The window of a depthwise convolution slides over one channel."""

    color = COLORS["depthwise"]
    x: Tensor  # (T) the channel
    kernel: Tensor  # (K)
    pad_left: int  # zeros before position 0


@dataclass(repr=False)
class PairMerges(InteractiveFigure):
    """The tokens of a text that the reader types, after a chosen number of BPE merges."""

    merges: list[tuple[int, int]]  # pairs of ids; pair r becomes type first + r
    byte_ids: list[int]  # the ids of the 256 bytes
    first: int
    text: str  # the text at first

    def __repr__(self) -> str:  # short, because thousands of merges would fill a page
        return f"PairMerges({len(self.merges):,} merges, text={self.text!r})"


@dataclass(repr=False)
class KernelSoftmax(InteractiveFigure):
    """A LightConv kernel and its mixing matrix, with sliders for temperature and DropConnect."""

    color = COLORS["light"]
    logits: Tensor  # (K) before the softmax
    length: int  # positions T of the sequence
    pad_left: int  # zeros before position 0


@dataclass(repr=False)
class WordKernels(InteractiveFigure):
    """The kernel of the word that the reader clicks, and its row of the mixing matrix."""

    color = COLORS["dynamic"]
    words: list[str]  # T of them
    kernels: Tensor  # (T, K) normalised weights of one head
    pad_left: int  # zeros before position 0


@dataclass(repr=False)
class MixingRow(InteractiveFigure):
    """A row of a mixing matrix: how much each input word contributes to the chosen output."""

    words: list[str]  # T of them
    M: Tensor  # (T, T), rows are outputs; rounded to three decimals
    color: str = COLORS["attention"]  # the mixer's

    def __post_init__(self) -> None:
        self.M = self.M.round(decimals=3)


@dataclass(repr=False)
class PrefixScan(InteractiveFigure):
    """Prefix sums computed step by step: which cells are added, how many additions, what depth."""

    color = COLORS["talk"]
    x: Tensor  # (T) the numbers, T a power of two; 8 fit well

    def __post_init__(self) -> None:
        T = len(self.x)
        if T < 2 or T & (T - 1):
            raise ValueError(f"a scan of {T} cells: their number must be a power of two")


class BlockTrace(InteractiveFigure):
    """Replays what the threads of one CUDA block read and write, instruction by instruction.

    accesses  of one block, as `dynconv.lab.simulate.trace` returns them
    rows      what is drawn: a name, the array's number in the accesses (-1 for shared memory, whose
              elements are words of 4 bytes), and its length in elements
    halo      how many elements at each end of shared memory belong to neighbouring blocks

    All threads advance in lockstep. A cell shows the thread that uses it, or how many do.
    """

    color = COLORS["light"]

    def __init__(
        self,
        accesses: np.ndarray,
        rows: Sequence[tuple[str, int, int]],
        halo: tuple[int, int] = (0, 0),
    ) -> None:
        blocks = np.unique(accesses["block"]).tolist()
        if len(blocks) != 1:
            raise ValueError(f"accesses of blocks {blocks}: pass the accesses of one block")
        self.rows = [(name, int(array < 0), length) for name, array, length in rows]
        self.halo = halo
        self.steps = list_steps(accesses, [array for _, array, _ in rows])


def list_steps(accesses: np.ndarray, arrays: Sequence[int]) -> list[list]:
    """Return what a block does to these arrays in each step, with all threads in lockstep.

    A step is: phase, row of the array, write, bytes, elements per access, and pairs of a thread and
    the first element that it accesses.
    """
    drawn = accesses[np.isin(accesses["array"], arrays)]
    drawn = drawn[np.lexsort((drawn["thread"], drawn["site"], drawn["step"]))]
    ends = np.flatnonzero(np.diff(drawn["site"]) | np.diff(drawn["step"]))
    out = []
    for a in np.split(drawn, ends + 1):
        phase, array, write = (a[field][0].item() for field in ("phase", "array", "write"))
        width = a["bytes"][0].item() // element_bytes(drawn[drawn["array"] == array])
        cells = np.stack([a["thread"], a["index"]], axis=1).tolist()
        total = a["bytes"].sum().item()
        out.append([phase, arrays.index(array), int(write), total, max(1, width), cells])
    return out


def element_bytes(accesses: np.ndarray) -> int:
    """Return the bytes per element of the array accessed; shared memory consists of words."""
    first = accesses[accesses["index"] > 0][:1] if accesses["array"][0] >= 0 else []
    return (first["offset"] // first["index"]).item() if len(first) else 4


@dataclass(repr=False)
class TalkWindow(InteractiveFigure):
    """TaLK's window of one word, with edges to drag, and the two look-ups that sum it."""

    color = COLORS["talk"]
    words: list[str]  # T of them
    x: Tensor  # (T) the channel that is summed
    left: Tensor  # (T) offsets to begin with, from 0 to 1, rounded to hundredths
    right: Tensor | None  # (T), or None if max_right is 0
    max_left: int  # how many words an offset of 1 reaches
    max_right: int

    def __post_init__(self) -> None:
        self.left = self.left.round(decimals=2)
        self.right = None if self.right is None else self.right.round(decimals=2)


@dataclass(repr=False)
class BeamGrowth(InteractiveFigure):
    """A beam search, step by step: which hypotheses are kept, pruned and finished.

    record  (words, log p, fate, score) of each candidate, in order of the steps. A candidate of
    step t has t words; its fate is "live", "pruned" or "finished"; the score, log p divided by the
    length penalty, is None unless it is finished.
    """

    record: Sequence[tuple[Sequence[str], float, str, float | None]]

    def __post_init__(self) -> None:
        self.record = [
            [list(words), round(logp, 4), fate, None if score is None else round(score, 4)]
            for words, logp, fate, score in self.record
        ]
