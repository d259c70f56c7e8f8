"""Right and wrong answers to the exercises on sequences."""

import itertools
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F

from dynconv.layers.attention import attend
from dynconv.ops.shapes import split_heads
from dynconv.text import batch_by_length


def respelled(ids, allowed, table, first, deep=True):
    out = []
    for i in ids:
        if i < first or i in allowed:
            out.append(i)
        else:
            parts = list(table[i - first])
            out += respelled(parts, allowed, table, first) if deep else parts
    return out


def without_an_end(ids, allowed, table, first):
    """Looks for the parts of a basic type, too."""
    apart = ([i] if i in allowed else without_an_end(table[i - 4], allowed, table, 4) for i in ids)
    return [i for part in apart for i in part]


def batches(lengths, budget, seed, place, *, of_epoch=None, from_stop=False):
    """The solution of lesson 02; the options make mistakes."""
    epoch, done = place
    while True:
        found = of_epoch(epoch) if of_epoch else batch_by_length(lengths, budget, (seed, epoch))
        for n, batch in enumerate(found[done:], start=0 if from_stop else done):
            yield batch, (epoch, n + 1)
        epoch, done = epoch + 1, 0


def with_one_generator(lengths, budget, seed, place):
    """What it draws in an epoch depends on the epochs before."""
    order = np.random.default_rng(seed)

    def shuffled(epoch):
        found = batch_by_length(lengths, budget)
        order.shuffle(found)
        return found

    return batches(lengths, budget, seed, place, of_epoch=shuffled)


def same_epoch(lengths, budget, seed, place):
    found = batch_by_length(lengths, budget, seed)
    return batches(lengths, budget, seed, place, of_epoch=lambda epoch: found)


def sliced_window(q, k, v, H, K):
    rows = []
    for t in range(q.shape[1]):
        seen = slice(max(0, t - K // 2), t + K // 2 + 1)
        parts = (split_heads(x, H) for x in (q[:, t : t + 1], k[:, seen], v[:, seen]))
        rows.append(attend(*parts))
    return torch.cat(rows, dim=1)


def masked_window(q, k, v, H, K):
    """Right, but by a T x T matrix."""
    at = torch.arange(q.shape[1])
    allowed = (at - at[:, None]).abs() <= K // 2
    return attend(*(split_heads(x, H) for x in (q, k, v)), allowed)


def padded_window(q, k, v, H, K):
    """Zeros beyond the ends take part."""
    return sliced_window(*(F.pad(x, (0, 0, K, K)) for x in (q, k, v)), H, K)[:, K:-K]


RIGHT = {"respell": [respelled], "resumable": [batches], "window_attention": [sliced_window]}
WRONG = {
    "respell": [
        (partial(respelled, deep=False), r"allowed \[4, 6\].* differ first at \[1\]: mine \["),
        (lambda *case: [*respelled(*case), 0], r"differ first at \[5\]"),
        (without_an_end, "RecursionError.*; it does not end; ids below 4 stay"),
    ],
    "resumable": [
        (with_one_generator, r"from \(1, 1\) on, batch 0 is"),
        (lambda *z: batches(*z[:3], (z[3][0], 0)), r"from \(0, 1\) on, batch 0 is"),
        (lambda lengths, budget, *z: batches(lengths, 120, *z), "over the budget"),
        (lambda *z: itertools.islice(batches(*z), 20), "ends after 20 batches"),
        (lambda *z: (([b[0]] * len(b), p) for b, p in batches(*z)), "again in epoch 0"),
        (same_epoch, "epoch 1 repeats"),
        (
            partial(batches, from_stop=True),
            r"\(0, 1\) on, the place after batch 0 is \(0, 1\), and",
        ),
        (lambda *z: batches(*z[:2], 1, z[3]), "seed 2 gives the batches of seed 1"),
        (lambda *z: (([], p) for _, p in batches(*z)), "batch 0 is empty"),
        (lambda *z: (b for b, _ in batches(*z)), r"it yields array.*, not \(indices"),
    ],
    "window_attention": [
        (masked_window, "T = 500: keeps .* bytes"),
        (lambda *z, H, K: sliced_window(*z, H, K + 2), "T = 12, .* values differ first"),
        (padded_window, r"values differ first at \[0, 0, 0\]"),
    ],
}
