"""Checks of the exercises on text."""

from collections.abc import Callable, Iterator
from itertools import islice

import numpy as np


def respell(mine: Callable[..., list[int]]) -> None:
    """mine(ids, allowed, table, first) takes types apart that are not allowed, down to basic ones.

    Pair r of the table is type first + r; the types below `first` are basic.
    """
    table = [(0, 1), (4, 2), (2, 3), (5, 6)]  # 4 is 01, 5 is 012, 6 is 23, 7 is 01223
    cases = [{4, 5, 6, 7}, {4, 5, 6}, {4, 6}, {5}, {7}, set()]

    def apart(i: int, allowed: set[int]) -> list[int]:
        if i < 4 or i in allowed:
            return [i]
        return [j for part in table[i - 4] for j in apart(part, allowed)]

    for allowed in cases:
        for ids in ([3, 7, 0, 5, 5], [6], []):
            theirs = [j for i in ids for j in apart(i, allowed)]
            case = f"ids {ids}, allowed {sorted(allowed)}, table {table}, first 4: "
            try:
                got = mine(list(ids), set(allowed), list(table), 4)
            except RecursionError:
                raise AssertionError(case + "it does not end; ids below 4 stay") from None
            if not isinstance(got, list):
                raise AssertionError(f"it returns a {type(got).__name__}, not a list")
            if got != theirs:
                pairs = enumerate(zip(got, theirs, strict=False))
                at = next((i for i, (a, b) in pairs if a != b), min(len(got), len(theirs)))
                raise AssertionError(case + f"differ first at [{at}]: mine {got}, theirs {theirs}")
    print(f"right: {len(cases)} sets of allowed types")


def resumable(mine: Callable[..., Iterator]) -> None:
    """mine(lengths, budget, seed, place) yields batches for ever, from a place on.

    lengths is (N, 2), of both sides; budget the most positions of a table on either side. What it
    yields is (indices of a batch, the place after it). A place is (epoch, batches of it that are
    done), and (0, 0) the first.
    """
    lengths, budget = np.random.default_rng(0).integers(2, 30, (60, 2)), 100

    def take(
        count: int, place: tuple[int, int], seed: int = 1
    ) -> list[tuple[list[int], tuple[int, int]]]:
        found = islice(mine(lengths, budget, seed, place), count)
        return [([int(i) for i in indices], after) for indices, after in found]

    stream = take(100, (0, 0))
    if len(stream) < 100:
        raise AssertionError(f"ends after {len(stream)} batches, and should go on for ever")
    batches = [indices for indices, _ in stream]
    epochs = _epochs(batches, lengths, budget)
    if epochs[0] == epochs[1]:
        raise AssertionError("epoch 1 repeats the batches of epoch 0 in the same order")
    if batches[:5] == [indices for indices, _ in take(5, (0, 0), seed=2)]:
        raise AssertionError("seed 2 gives the batches of seed 1 in the same order")

    for n, (_, place) in enumerate(stream[:50], start=1):
        pairs = zip(take(5, place), stream[n : n + 5], strict=True)
        for k, ((found, after), (right, right_after)) in enumerate(pairs):
            if found != right:
                raise AssertionError(f"from {place} on, batch {k} is {found}, and was {right}")
            if after != right_after:
                raise AssertionError(
                    f"from {place} on, the place after batch {k} is {after}, and was {right_after}"
                )
    print(f"right: {len(epochs)} epochs, each the same from 50 places")


def _epochs(batches: list[list[int]], lengths: np.ndarray, budget: int) -> list[list[list[int]]]:
    """The batches of each whole epoch, in which every sentence comes once."""
    epochs, left = [], set()
    for n, batch in enumerate(batches):
        if not left:
            epochs.append([])
            left = set(range(len(lengths)))
        if not batch:
            raise AssertionError(f"batch {n} is empty")
        if (positions := len(batch) * lengths[batch].max()) > budget:
            raise AssertionError(f"batch {n} has {positions} positions, over the budget {budget}")
        for i in batch:
            if i not in left:
                raise AssertionError(f"batch {n}: sentence {i} again in epoch {len(epochs) - 1}")
            left.remove(i)
        epochs[-1].append(batch)
    return epochs[:-1] if left else epochs
