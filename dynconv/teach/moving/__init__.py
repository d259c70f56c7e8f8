"""Figures that move: small custom elements, fed by the reader's tensors, that need no server."""

import json
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from dynconv.lab.style import COLORS

FOLDER = Path(__file__).parent


class Moving:
    """A figure for a notebook and its page; `print` shows what it was given."""

    def __init__(self, **data: Any) -> None:
        self.data = data

    def __repr__(self) -> str:
        given = ", ".join(f"{key}={value}" for key, value in self.data.items() if key != "color")
        return f"{type(self).__name__}({given})"

    def _repr_html_(self) -> str:
        name = type(self).__name__
        file = "".join(f"_{c.lower()}" if c.isupper() else c for c in name)[1:]
        tag = file.replace("_", "-")
        code = "\n".join((FOLDER / f"{part}.js").read_text("utf-8") for part in ("base", file))
        # A block, so that the second figure of a page may say const again.
        define = f'customElements.get("{tag}") || customElements.define("{tag}", {name});'
        data = escape(json.dumps(self.data, ensure_ascii=False))
        return f'<script>{{\n{code}\n{define}\n}}</script>\n<{tag} data="{data}"></{tag}>'


def rounded(x: Tensor) -> list:
    """Numbers of four decimals, as nested lists: the same text on every machine."""
    text = json.dumps(x.detach().double().tolist())
    return json.loads(text, parse_float=lambda number: round(float(number), 4))


class SlidingWindow(Moving):
    """The window of a depthwise convolution over one channel.

    x         (T) the channel
    kernel    (K)
    pad_left  zeros before position 0
    """

    def __init__(self, x: Tensor, kernel: Tensor, pad_left: int) -> None:
        color = COLORS["depthwise"]
        super().__init__(x=rounded(x), kernel=rounded(kernel), pad_left=pad_left, color=color)


class PairMerges(Moving):
    """The tokens of what one types, after so many merges of a byte-pair encoding.

    merges    pairs of ids; pair r is type first + r
    byte_ids  those of the 256 bytes
    text      to begin with
    """

    def __init__(
        self, merges: Sequence[tuple[int, int]], byte_ids: Sequence[int], first: int, text: str
    ) -> None:
        data = {"merges": list(merges), "byte_ids": list(byte_ids), "first": first, "text": text}
        super().__init__(**data, color="currentColor")


class KernelSoftmax(Moving):
    """A LightConv kernel under a temperature and DropConnect, with its mixing matrix.

    logits    (K) before the softmax
    length    positions T of the sequence
    pad_left  zeros before position 0
    """

    def __init__(self, logits: Tensor, length: int, pad_left: int) -> None:
        color = COLORS["light"]
        super().__init__(logits=rounded(logits), length=length, pad_left=pad_left, color=color)


class WordKernels(Moving):
    """The kernel of the word that one clicks, and its row of the mixing matrix.

    words     T of them
    kernels   (T, K) normalised weights of one head
    pad_left  zeros before position 0
    """

    def __init__(self, words: Sequence[str], kernels: Tensor, pad_left: int) -> None:
        data = {"words": list(words), "kernels": rounded(kernels), "pad_left": pad_left}
        super().__init__(**data, color=COLORS["dynamic"])


class MixingRow(Moving):
    """A mixing matrix by rows: how much of each input word goes into the output one chooses.

    words  T of them
    M      (T, T), rows are outputs
    color  of the mixer, from `style.COLORS`
    """

    def __init__(self, words: Sequence[str], M: Tensor, color: str = COLORS["attention"]) -> None:
        super().__init__(words=list(words), M=rounded(M.round(decimals=3)), color=color)


class PrefixScan(Moving):
    """Prefix sums made in steps: which cells are added, how many additions, how deep.

    x  (T) the numbers, T a power of two; 8 fit well
    """

    def __init__(self, x: Tensor) -> None:
        T = len(x)
        if T < 2 or T & (T - 1):
            raise ValueError(f"a scan of {T} cells: their number must be a power of two")
        super().__init__(x=rounded(x), color=COLORS["talk"])


class BlockTrace(Moving):
    """A block of CUDA threads at work: what they read and write, one instruction after the other.

    accesses  of one block, from `dynconv.lab.simulate.trace`
    rows      what is drawn: a name, the array's number in the accesses (-1 for shared memory, whose
              elements are words of 4 bytes), and its length in elements
    halo      so many elements at the two ends of shared memory are the neighbours' as well

    All threads of the block go in step. In a cell stands the thread that uses it, or how many do.
    """

    def __init__(
        self,
        accesses: np.ndarray,
        rows: Sequence[tuple[str, int, int]],
        halo: tuple[int, int] = (0, 0),
    ) -> None:
        blocks = np.unique(accesses["block"]).tolist()
        if len(blocks) != 1:
            raise ValueError(f"accesses of blocks {blocks}: pass those of one block")
        drawn = [(name, int(array < 0), length) for name, array, length in rows]
        steps = in_step(accesses, [array for _, array, _ in rows])
        super().__init__(rows=drawn, halo=halo, steps=steps, color=COLORS["light"])


def in_step(accesses: np.ndarray, arrays: Sequence[int]) -> list[list]:
    """What a block does to these arrays, all its threads in step.

    Returns for each step: phase, row of the array, write, bytes, width of an access in elements,
    and pairs of a thread and the element that it begins with.
    """
    drawn = accesses[np.isin(accesses["array"], arrays)]
    drawn = drawn[np.lexsort((drawn["thread"], drawn["site"], drawn["step"]))]
    ends = np.flatnonzero(np.diff(drawn["site"]) | np.diff(drawn["step"]))
    out = []
    for a in np.split(drawn, ends + 1):
        phase, array, write = (a[field][0].item() for field in ("phase", "array", "write"))
        width = a["bytes"][0].item() // element(drawn[drawn["array"] == array])
        cells = np.stack([a["thread"], a["index"]], axis=1).tolist()
        total = a["bytes"].sum().item()
        out.append([phase, arrays.index(array), int(write), total, max(1, width), cells])
    return out


def element(accesses: np.ndarray) -> int:
    """Bytes of an element of the one array that these accesses hit: words in shared memory."""
    first = accesses[accesses["index"] > 0][:1] if accesses["array"][0] >= 0 else []
    return (first["offset"] // first["index"]).item() if len(first) else 4


class TalkWindow(Moving):
    """TaLK's window of one word, whose edges one drags, and the two look-ups that sum it.

    words      T of them
    x          (T) the channel that is summed
    left       (T) offsets to begin with, from 0 to 1, rounded to hundredths
    right      (T), or None if max_right is 0
    max_left, max_right  reaches of the offset 1, in words
    """

    def __init__(
        self,
        words: Sequence[str],
        x: Tensor,
        left: Tensor,
        right: Tensor | None,
        max_left: int,
        max_right: int,
    ) -> None:
        offsets = {
            side: None if offset is None else rounded(offset.round(decimals=2))
            for side, offset in (("left", left), ("right", right))
        }
        reaches = {"max_left": max_left, "max_right": max_right}
        super().__init__(
            words=list(words), x=rounded(x), **offsets, **reaches, color=COLORS["talk"]
        )


class BeamGrowth(Moving):
    """A beam that grows step by step: kept hypotheses, pruned ones, finished ones.

    record  (words, log p, fate, score) of each candidate that a search has ranked, step by step: a
            candidate of step t has t words; fate is "live", "pruned" or "finished", and score,
            None but for the finished, is log p over the length penalty
    """

    def __init__(self, record: Sequence[tuple[Sequence[str], float, str, float | None]]) -> None:
        nodes = [
            [list(words), round(logp, 4), fate, None if score is None else round(score, 4)]
            for words, logp, fate, score in record
        ]
        super().__init__(record=nodes, color="currentColor")
