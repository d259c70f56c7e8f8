"""The check of the exercise on TaLK's windows."""

from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from dynconv.ops.talk import talk_conv_loop
from dynconv.teach.check.inputs import left_alone


def cases() -> dict[str, tuple[Tensor, Tensor, Tensor | None, int, int]]:
    """For each name x (B, T, C), left (B, T, H), right, max_left and max_right."""
    g = torch.Generator().manual_seed(15)

    def case(T: int, H: int, max_left: int, max_right: int, steps: int, inside: bool = False):
        """Offsets of so many steps from 0 to 1; `inside`: cut back to windows without clamping."""
        x = torch.randn(2, T, 6, generator=g, dtype=torch.float64)
        left, right = torch.randint(steps + 1, (2, 2, T, H), generator=g).double() / steps
        if inside:
            t = torch.arange(T)[:, None]
            left = torch.minimum(left, t / max_left)
            right = torch.minimum(right, (T - 1 - t) / max_right)
        return x, left, right if max_right else None, max_left, max_right

    return {
        "windows of whole words": case(9, 1, 2, 2, steps=2, inside=True),
        "edges inside of words": case(9, 1, 2, 2, steps=8, inside=True),
        "max_left 4, max_right 2": case(9, 1, 4, 2, steps=8, inside=True),
        "two heads": case(9, 2, 4, 2, steps=8, inside=True),
        "windows beyond both ends": case(5, 2, 8, 4, steps=8),
        "causal": case(9, 2, 4, 0, steps=8),
        "a sentence of one word": case(1, 3, 4, 4, steps=8),
    }


def window_ends(
    left: Tensor, right: Tensor, max_left: int, max_right: int
) -> tuple[Tensor, Tensor]:
    T = left.shape[1]
    t = torch.arange(T)[:, None]
    return (t - left * max_left).clamp(min=0), (t + 1 + right * max_right).clamp(max=T)


def summed(x: Tensor, begin: Tensor, end: Tensor, *, interleaved: bool = False) -> Tensor:
    """The sum of what lies between places (B, T, H), word s being the cell from s to s + 1."""
    return weighted(x, overlap(begin, end).clamp(min=0), interleaved=interleaved)


def overlap(begin: Tensor, end: Tensor) -> Tensor:
    """(B, T, H, T): how far the window and a cell overlap; negative where they do not."""
    s = torch.arange(begin.shape[1])
    return torch.minimum(end[..., None], s + 1) - torch.maximum(begin[..., None], s)


def weighted(x: Tensor, share: Tensor, *, interleaved: bool = False) -> Tensor:
    C, H = x.shape[2], share.shape[2]
    heads = [c % H if interleaved else c // (C // H) for c in range(C)]
    return torch.einsum("btcs,bsc->btc", share[:, :, heads], x)


def faults(
    x: Tensor, left: Tensor, right: Tensor | None, max_left: int, max_right: int
) -> Iterator[tuple[str, Tensor]]:
    """What usual mistakes return, and how to mend them."""
    causal, K = right is None, max_left + max_right + 1
    right = torch.zeros_like(left) if causal else right
    begin, end = window_ends(left, right, max_left, max_right)
    total, T, R = summed(x, begin, end), x.shape[1], x.shape[2] // left.shape[2]
    s, t = torch.arange(T), torch.arange(T)[:, None]
    own = (end - begin).repeat_interleave(R, dim=2)
    yield "it is not divided by max_left + max_right + 1", total
    yield "it is divided by max_left + max_right: the word itself counts, too", total / (K - 1)
    yield "divide by max_left + max_right + 1, not by the window's own width", total / own
    lost = "the word itself, the cell from t to t + 1, belongs to the window"
    yield lost, summed(x, begin, end - 1) / K
    yield lost, summed(x, begin + 1, end) / K
    if not causal:
        exchanged = window_ends(right, left, max_left, max_right)
        yield "left and right are exchanged", summed(x, *exchanged) / K
        swapped = window_ends(left, right, max_right, max_left)
        yield "max_left and max_right are exchanged", summed(x, *swapped) / K
    cut = "an edge is rounded to whole words: a word that it cuts counts in part"
    for low in (torch.floor, torch.ceil, torch.round):
        for high in (torch.floor, torch.ceil, torch.round):
            yield cut, summed(x, low(begin), high(end)) / K
    yield cut, summed(x, t - (t - begin).round(), t + 1 + (end - t - 1).round()) / K
    scale = "an offset is a share of max_left or max_right: multiply them"
    yield scale, summed(x, *window_ends(left, right, 1, 1)) / K
    moved = "tap j meets the word t + j - max_left: pad_left is max_left"
    for pad_left in {0, max_right, K // 2, K - 1} - {max_left}:
        late = min(max(max_left - pad_left, -T), T)
        yield moved, summed(F.pad(x, (0, 0, -late, late)), begin, end) / K
    reached = ((s >= t - max_left) & (s <= t + max_right))[:, None]  # (T, 1, T)
    smaller = torch.minimum(s + 1 - begin[..., None], end[..., None] - s)
    for share in (overlap(begin, end), smaller, smaller.clamp(min=0), smaller.clamp(max=1)):
        yield "the share of a word lies between 0 and 1", weighted(x, share * reached) / K
    other = "channel c belongs to head c // (C // H), not c % H"
    yield other, summed(x, begin, end, interleaved=True) / K


def leaves(x: Tensor, left: Tensor, right: Tensor | None, max_left: int, max_right: int) -> Tensor:
    """Which outputs (B, T, C) have a window that reaches beyond an end."""
    t, T = torch.arange(x.shape[1])[:, None], x.shape[1]
    beyond = t - left * max_left < 0
    if right is not None:
        beyond |= t + 1 + right * max_right > T
    return beyond.repeat_interleave(x.shape[2] // left.shape[2], dim=2)


def talk(mine: Callable[..., Tensor]) -> None:
    """mine(x, left, right, max_left, max_right) is a TaLK convolution: x (B, T, C), offsets
    (B, T, H); right is None where max_right is 0."""
    for name, given in cases().items():
        right = talk_conv_loop(*given)
        copies = [z.clone() if isinstance(z, Tensor) else z for z in given]
        try:
            out = mine(*copies)
        except NotImplementedError:
            raise
        except (IndexError, RuntimeError, TypeError) as error:
            said = str(error).partition("\n")[0]
            raise AssertionError(f"{name}: it raises {type(error).__name__}: {said}") from None
        left_alone(("x", "left", "right"), copies[:3], given[:3])
        if not isinstance(out, Tensor):
            raise AssertionError(f"{name}: it returns a {type(out).__name__}, not a tensor")
        if out.shape != right.shape:
            raise AssertionError(f"{name}: it returns {(*out.shape,)}, not {(*right.shape,)}")

        def near(a: Tensor, b: Tensor) -> Tensor:
            return torch.isclose(a.double(), b, rtol=1e-5, atol=1e-6)

        wrong = ~near(out, right)
        if wrong.any():
            at = tuple(wrong.nonzero()[0].tolist())
            why = next((f"; {hint}" for hint, z in faults(*given) if near(out, z).all()), "")
            if not (why or (wrong & ~leaves(*given)).any()):
                why = "; only where a window leaves the sentence: cut it at places 0 and T"
            numbers = f"mine {out[at]:.3g}, right {right[at]:.3g}"
            raise AssertionError(f"{name}: differs first at {list(at)}: {numbers}{why}")
    print(f"right: the values agree on {len(cases())} cases")
