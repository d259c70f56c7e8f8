"""Checks the exercises on sequences: spelling of types, resumable batches, windowed attention."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice

import numpy as np
import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from dynconv.layers.attention import attend
from dynconv.ops.shapes import split_heads
from dynconv.teach.judge import Wrong, attempt, describe_type, judge, label_sizes, short_repr

Place = tuple[int, int]
"""a place in the data: (epoch, batches of it that are done)"""


def respell(mine: Callable[..., list[int]]) -> None:
    """mine(ids, allowed, table, first) splits types that are not allowed, down to basic ones.

    Pair m of the table is type first + m; the types below `first` are basic.
    """
    table = [(0, 1), (4, 2), (2, 3), (5, 6)]  # 4 is 01, 5 is 012, 6 is 23, 7 is 01223
    allowed_types = [{4, 5, 6, 7}, {4, 5, 6}, {4, 6}, {5}, {7}, set()]

    def right(
        ids: list[int], allowed: set[int], table: list[tuple[int, int]], first: int
    ) -> list[int]:
        out = []
        for i in ids:
            basic = i < first or i in allowed
            out += [i] if basic else right(table[i - first], allowed, table, first)
        return out

    cases = {
        f"ids {ids}, allowed {sorted(allowed)}, table {table}, first 4": (ids, allowed, table, 4)
        for allowed in allowed_types
        for ids in ([3, 7, 0, 5, 5], [6], [])
    }
    judge(mine, right, cases, raises={RecursionError: "it does not end; ids below 4 stay"})
    print(f"right: {len(allowed_types)} sets of allowed types")


def resumable(mine: Callable[..., Iterator[tuple[list[int], Place]]]) -> None:
    """mine(lengths, budget, seed, place) yields batches forever, starting at a place.

    lengths is (N, 2), source and target; budget is the maximum number of positions, padding
    included, on either side. It yields (indices of a batch, place after it), from place (0, 0).
    """
    lengths, budget = np.random.default_rng(0).integers(2, 30, (60, 2)), 100

    def take(count: int, place: Place, seed: int = 1) -> list[tuple[list[int], Place]]:
        stream = attempt(partial(mine, lengths, budget, seed, place))
        if not isinstance(stream, Iterable):
            raise Wrong(f"it returns {describe_type(stream)}, and should yield batches")
        pairs = attempt(lambda: list(islice(stream, count)))
        for pair in pairs:
            if not isinstance(pair, tuple | list) or [*map(np.ndim, pair)] != [1, 1]:
                raise Wrong(
                    f"it yields {short_repr(pair)}, not (indices of a batch, the place after)"
                )
        return [([int(i) for i in indices], tuple(after)) for indices, after in pairs]

    stream = take(100, (0, 0))
    if len(stream) < 100:
        raise Wrong(f"it ends after {len(stream)} batches, and should go on for ever")
    batches = [indices for indices, _ in stream]
    epochs = whole_epochs(batches, lengths, budget)
    if epochs[:1] == epochs[1:2]:
        raise Wrong("epoch 1 repeats the batches of epoch 0 in the same order")
    if batches[:5] == [indices for indices, _ in take(5, (0, 0), seed=2)]:
        raise Wrong("seed 2 gives the batches of seed 1 in the same order")
    for n, (_, place) in enumerate(stream[:50], start=1):
        pairs = zip(take(5, place), stream[n : n + 5], strict=True)
        for k, (resumed, right) in enumerate(pairs):
            for what, mine_, theirs in zip(("", "the place after "), resumed, right, strict=True):
                if mine_ != theirs:
                    raise Wrong(f"from {place} on, {what}batch {k} is {mine_}, and was {theirs}")
    print(f"right: {len(epochs)} epochs, each the same from 50 places")


def whole_epochs(batches: list[list[int]], lengths: np.ndarray, budget: int) -> list:
    """Return the batches of each complete epoch, which contains every sentence once."""
    epochs, left = [], set()
    for n, batch in enumerate(batches):
        if not left:
            epochs.append([])
            left = set(range(len(lengths)))
        if not batch:
            raise Wrong(f"batch {n} is empty")
        for i in batch:
            if i not in left:
                raise Wrong(f"batch {n}: sentence {i} again in epoch {len(epochs) - 1}")
            left.remove(i)
        if (positions := len(batch) * lengths[batch].max()) > budget:
            raise Wrong(f"batch {n} has {positions} positions, over the budget {budget}")
        epochs[-1].append(batch)
    return epochs[:-1] if left else epochs


def window_attention(mine: Callable[..., Tensor]) -> None:
    """mine(q, k, v, H, K) is attention in centred windows: q, k, v (B, T, C), no (T, T) matrix."""

    def right(q: Tensor, k: Tensor, v: Tensor, *, H: int, K: int) -> Tensor:
        at = torch.arange(q.shape[1])
        allowed = (at - at[:, None]).abs() <= K // 2  # (T, T)
        return attend(*(split_heads(z, H) for z in (q, k, v)), allowed)

    cases = {}
    for T, H, K in ((12, 3, 5), (5, 2, 3), (1, 3, 5), (4, 3, 13)):
        inputs = torch.randn(3, 2, T, 6, generator=torch.Generator().manual_seed(T))
        cases[label_sizes(T=T, H=H, K=K)] = (*inputs, H, K)
    judge(mine, right, cases, gradients=True)

    T, kept = 500, []

    def pack(tensor: Tensor) -> Tensor:
        kept.append(tensor.untyped_storage().nbytes())
        return tensor

    inputs = [x.clone().requires_grad_() for x in torch.randn(3, 1, T, 6)]
    with saved_tensors_hooks(pack, lambda tensor: tensor):
        attempt(partial(mine, *inputs, H=2, K=3))
    if max(kept) >= T * T:  # even a mask of bools has as many bytes
        raise Wrong(f"T = {T}: keeps {max(kept):,} bytes in one piece, a T x T matrix")
    print("right: values and 3 gradients agree on 4 cases, and no (T, T) matrix is kept")
