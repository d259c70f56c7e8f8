"""Checks the exercises on states that carry the past."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from dynconv.teach.judge import judge

SIZES = {"one word": (1, 1, 2, 3), "two sentences": (2, 7, 3, 4), "many words": (1, 40, 2, 2)}
"""sizes B, T, C and N, keyed by name"""


def state_after(mine: Callable[[Tensor, Tensor, Tensor], Tensor]) -> None:
    """mine(x, keep, write) is the state (B, C, N) after x (B, T, C); keep and write are (C, N)."""
    cases = {f"{name}: B, T, C, N = {size}": random_prompt(*size) for name, size in SIZES.items()}
    judge(mine, final_state, cases, state_faults, gradients=True)
    print(f"right: the states after {len(cases)} prompts, with gradients")


def random_prompt(B: int, T: int, C: int, N: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return random x, keep between 0.2 and 1, and write."""
    g = torch.Generator().manual_seed(T)
    keep = 0.2 + 0.8 * torch.rand(C, N, generator=g)
    return torch.randn(B, T, C, generator=g), keep, torch.randn(C, N, generator=g)


def final_state(x: Tensor, keep: Tensor, write: Tensor) -> Tensor:
    """Run the recurrence word by word."""
    z = x.new_zeros(len(x), *keep.shape)
    for x_t in x.unbind(1):
        z = keep * z + write * x_t.unsqueeze(-1)
    return z


def state_faults(x: Tensor, keep: Tensor, write: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Yield what common mistakes return."""
    backwards = "the powers run backwards: the last word has not faded, the first one T - 1 times"
    yield backwards, final_state(x.flip(1), keep, write)
    yield "one power too many: the last word has not faded", final_state(x, keep, keep * write)
    ones = torch.ones_like(keep)
    yield "`write` scales each input on its way into the states", final_state(x, keep, ones)
    yield "nothing fades: multiply by powers of `keep`", final_state(x, ones, write)


class Chunk(NamedTuple):
    """Outputs of a chunk (B, Q, R), and the state after it (B, R, R)."""

    y: Tensor
    Z: Tensor


def gated_chunk(mine: Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Chunk]) -> None:
    """mine(Z, q, k, v, keep) is the outputs of a chunk and the next state, for factors (B, Q)."""
    cases = {}
    for name, (B, Q, R) in {"a chunk": (2, 8, 4), "one word": (1, 1, 3)}.items():
        g = torch.Generator().manual_seed(Q)
        Z, q, k, v = (torch.randn(B, n, R, generator=g) for n in (R, Q, Q, Q))
        keep = 0.1 + 0.9 * torch.rand(B, Q, generator=g)
        inputs = tuple(z.double() for z in (Z, q, k, v, keep))
        cases[f"{name}: B, Q, R = {B, Q, R}"] = inputs
    Z, q, k, v, keep = (z[:1] for z in cases["a chunk: B, Q, R = (2, 8, 4)"])
    marks = keep.new_tensor([[0, 1, 1, 0, 1]])
    cases["keep = [0, 1, 1, 0, 1]"] = Z, q[:, :5], k[:, :5], v[:, :5], marks
    judge(mine, word_by_word, cases, chunk_faults)
    print(f"right: outputs and states of {len(cases)} chunks")


def word_by_word(Z: Tensor, q: Tensor, k: Tensor, v: Tensor, keep: Tensor) -> Chunk:
    """Run Z = keep Z + k^T v, y = q Z."""
    rows = []
    for t in range(q.shape[1]):
        Z = keep[:, t, None, None] * Z + k[:, t, :, None] * v[:, t, None]
        rows.append((q[:, t, None] @ Z).squeeze(1))
    return Chunk(torch.stack(rows, dim=1), Z)


def chunk_faults(
    Z: Tensor, q: Tensor, k: Tensor, v: Tensor, keep: Tensor
) -> Iterator[tuple[str, Chunk]]:
    """Yield what common mistakes return."""
    right, zero = word_by_word(Z, q, k, v, keep), torch.zeros_like(Z)
    alone = word_by_word(zero, q, k, v, keep)
    yield "the old state is not read: it reaches every word of the chunk", right._replace(y=alone.y)
    yield "the old state does not reach the next one", right._replace(Z=alone.Z)
    whole = q @ Z
    unfaded = "the old state fades at the first word of the chunk already, and at each one after it"
    yield unfaded, right._replace(y=alone.y + whole)
    late = torch.cat([torch.ones_like(keep[:, :1]), keep[:, :-1]], dim=1).cumprod(1)
    one_late = "word t fades the old state by its own factor also: the product includes keep[:, t]"
    yield one_late, right._replace(y=alone.y + late.unsqueeze(-1) * whole)
    yield "nothing fades: use `keep`", word_by_word(Z, q, k, v, torch.ones_like(keep))
    divided = (q @ k.mT * decay_ratios(keep).tril()) @ v + keep.cumprod(1).unsqueeze(-1) * whole
    no_ratio = "a factor of 0 makes a difference of logarithms, or a quotient of products, NaN"
    yield no_ratio, right._replace(y=divided)
    both = (q @ k.mT * decay_ratios(keep)) @ v + keep.cumprod(1).unsqueeze(-1) * whole
    yield "a word sees later ones: keep only s <= t", right._replace(y=both)


def decay_ratios(keep: Tensor) -> Tensor:
    """Return (B, Q, Q): the product up to t divided by the product up to s, for all t and s."""
    clock = keep.log().cumsum(1)
    return (clock.unsqueeze(2) - clock.unsqueeze(1)).exp()


Stack = list[tuple[str, int | None]]
"""mixers from bottom to top, each with its window, width or number of states"""


class Kept(NamedTuple):
    """Counts the numbers that a stack keeps; other arguments than the defaults are mistakes."""

    of_attention: int = 2
    """vectors per word: a key and a value"""
    own_word: int = 0
    """the number of extra words: 1 if a window keeps also the word that leaves it next"""
    unlimited: bool = False
    """whether attention keeps all words in spite of its window"""
    full_window: bool = False
    """whether a window counts as full from the first word on"""
    inputs: int = 3
    """the number of inputs of the short convolution in front of the states"""
    taps: int = 0
    """taps added to the K - 1 inputs of a convolution"""
    by_channel: bool = True

    def __call__(self, stack: Stack, t: int, C: int) -> int:
        """Return the numbers after t words."""
        vectors = sum(self.vectors(mixer, size, t) for mixer, size in stack)
        return vectors * (C if self.by_channel else 1)

    def vectors(self, mixer: str, size: int | None, t: int) -> int:
        """Return the numbers of a layer per channel."""
        if mixer == "selective":
            return size + self.inputs
        if mixer != "attention":
            return size - 1 + self.taps
        if size is None or self.unlimited:
            return self.of_attention * t
        window = size - 1 + self.own_word
        return self.of_attention * (window if self.full_window else min(t, window))


KEPT_FAULTS = {
    "attention keeps a key and a value of each word": Kept(of_attention=1),
    "a window of K needs K - 1 words: the next one brings its own key and value": Kept(own_word=1),
    "attention with a window forgets what has left it": Kept(unlimited=True),
    "after t words, a window contains at most t": Kept(full_window=True),
    "`selective` also keeps three inputs of its convolution": Kept(inputs=0),
    "the convolution in front of the states keeps three inputs, one less than its taps": Kept(
        inputs=4
    ),
    "a convolution of K taps keeps K - 1 inputs": Kept(taps=1),
    "these are the numbers of one channel: multiply by C": Kept(by_channel=False),
}


def numbers_kept(mine: Callable[[Stack, int, int], int]) -> None:
    """mine(stack, t, C) counts the numbers that the layers keep for a sentence after t words."""
    attention, window = ("attention", None), ("attention", 9)
    stacks: dict[str, tuple[Stack, int, int]] = {
        "two layers of attention after 30 words": ([attention, attention], 30, 8),
        "attention with a window of 9 after 30 words": ([window], 30, 8),
        "attention with a window of 9 after 5 words": ([window], 5, 8),
        "convolutions after 30 words": ([("light", 3), ("dynamic", 15)], 30, 8),
        "selective states after 30 words": ([("selective", 16)], 30, 8),
        "a hybrid after 1,000 words": ([("selective", 16)] * 7 + [attention, window], 1000, 64),
    }
    judge(mine, Kept(), stacks, KEPT_FAULTS)
    print(f"right: {len(stacks)} stacks")
