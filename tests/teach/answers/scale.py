"""Right and wrong answers to the exercises on training at scale."""

import math
import time

import torch

from dynconv.text.builders.steps import fits


def ring(x, rank, size, send, receive, start=0, rounds=2):
    parts = list(x.tensor_split(size))
    for step in range(size - 1):
        send(parts[(rank - step) % size])
        k = (rank - step - 1) % size
        parts[k] = parts[k] + receive(len(parts[k]))
    for step in range(size - 1 if rounds == 2 else 0):
        send(parts[(rank + 1 + start - step) % size])
        k = (rank + start - step) % size
        parts[k] = receive(len(parts[k]))
    return torch.cat(parts)


def ring_in_place(x, rank, size, send, receive):
    parts = x.tensor_split(size)
    for step in range(2 * size - 2):
        send(parts[(rank - step) % size])
        k = (rank - step - 1) % size
        new = receive(len(parts[k]))
        parts[k].copy_(new + parts[k] if step < size - 1 else new)
    return x


def whole_vectors(x, rank, size, send, receive):
    total, passing = x, x
    for _ in range(size - 1):
        send(passing)
        passing = receive(len(x))
        total = total + passing
    return total


def silent(x, rank, size, send, receive):
    if size > 1:
        receive(1)
    return x


def unread(x, rank, size, send, receive):
    out = ring(x, rank, size, send, receive)
    if rank == 0:
        send(x[:0])
    return out


def by_package(pairs, longest, ratio):
    return [pair for pair in pairs if fits(pair, longest, ratio)]


def words(side):
    return len(side.split())


def near(n, m, longest, ratio):
    return max(n, m) <= longest and max(n, m) <= ratio * min(n, m)


def written(keep=near, count=words, longest_word=1000):
    """A cleaning by the number of words of both sides; the options make mistakes."""

    def clean(pairs, longest, ratio):
        counted = [(pair, *map(count, pair)) for pair in pairs]
        pairs = [pair for pair, n, m in counted if min(n, m) and keep(n, m, longest, ratio)]
        return [p for p in pairs if all(len(w) <= longest_word for w in " ".join(p).split())]

    return clean


def divides_first(pairs, longest, ratio):
    sides = [(pair, *map(words, pair)) for pair in pairs]
    return [pair for pair, n, m in sides if 1 / ratio <= n / m <= ratio and 0 < n <= longest >= m]


def plan(update, gpus, most, batches=lambda u, g, m: -(-u // (g * m)), size=int):
    """(accumulate, batch_tokens); the options make mistakes."""
    accumulate = batches(update, gpus, most)
    return accumulate, size(update / gpus / accumulate)


def rounded_down(update, gpus, most):
    return max(1, update // (gpus * most))


def capped(update, gpus, most):
    accumulate, size = plan(update, gpus, most, rounded_down)
    return accumulate, min(most, size)


RIGHT = {
    "ring_all_reduce": [ring, ring_in_place],
    "cleaned": [by_package, written(), lambda *z: (list(pair) for pair in by_package(*z))],
    "accumulation": [plan],
}
KEEPS, DROPS = "it keeps the pair, which goes", "it drops the pair, which stays"
WRONG = {
    "ring_all_reduce": [
        (whole_vectors, r"^3 processes, 12 numbers: rank 0 sends 24 numbers, 16 are enough"),
        (lambda *a: ring(*a, rounds=1), r"^2 processes, 6 numbers: rank 0 differs first at \[0\]"),
        (lambda *a: ring(*a) / a[2], r"^2 processes, 6 numbers: rank 0 differs first at"),
        (lambda *a: ring(*a, start=-1), r"^2 processes, 6 numbers: rank 0 differs first at"),
        (
            lambda x, rank, *a: ring(0 * x if rank == 0 else x, rank, *a),
            r"where rank r has 1 \* 10\^r: mine 0",
        ),
        (silent, "rank .: it waits, and no message comes"),
        (unread, "rank [01] leaves 1 messages unread"),
        (lambda x, r, n, s, g: s(x) or g(2), "asks for 2 numbers, and the message has 5"),
        (lambda x, r, n, s, g: s(None), "rank 0: it sends None, not a tensor"),
        (lambda x, r, n, s, g: x[99], "rank 0: it raises IndexError"),
        (lambda x, *_: time.sleep(1), "rank 0: it does not end"),
    ],
    "cleaned": [
        (lambda *_: [True], "not a list of pairs"),
        (lambda pairs, *_: pairs, f"one side blank: .*{KEEPS} with at most 6 words"),
        (lambda pairs, *_: [], f"same length: .*{DROPS} with at most 6 words"),
        (lambda pairs, a, b: by_package(pairs, 6, 1.5), f"with other limits: .*{DROPS}"),
        (divides_first, "other side blank: .*; it divides by the length of an empty side"),
        (written(count=len), f"same length: .*{DROPS}"),
        (written(count=lambda side: side.count(" ") + 1), f"both sides blank: .*{KEEPS}"),
        (written(count=lambda side: len(side.split(" "))), f"both sides blank: .*{KEEPS}"),
        (written(lambda n, m, a, b: max(n, m) <= a and n / m <= b), f"target twice.*{KEEPS}"),
        (
            written(lambda n, m, a, b: near(n, m, a, b) and max(n, m) < b * min(n, m)),
            f"source longer: .*{DROPS}",
        ),
        (
            written(lambda n, m, a, b: near(n, m, a, 9) and max(n, m) // min(n, m) <= b),
            f"and five: .*{KEEPS}",
        ),
        (written(longest_word=9999), f"a word of 1,001 characters: .*{KEEPS}"),
        (written(lambda n, m, a, b: n <= a and near(n, m, 99, b)), f"target side: .*{KEEPS}"),
        (
            written(lambda n, m, a, b: min(n, m) <= a and near(n, m, 99, b)),
            f"source side: .*{KEEPS}",
        ),
        (
            lambda *z: [p for p in by_package(*z) if max(map(len, p)) <= 1000],
            f"600 characters: .*{DROPS}",
        ),
        (lambda *z: list(dict.fromkeys(by_package(*z))), "is a repeated pair lost"),
        (lambda *z: by_package(*z)[::-1], "all pairs together: .*; they are in another order"),
        (lambda *z: [tuple(s.upper() for s in p) for p in by_package(*z)], "neither the pair nor"),
    ],
    "accumulation": [
        (lambda u, g, m: plan(u, g, m)[0], r"it returns an int, not \(accumulate, batch_tokens\)"),
        (lambda u, g, m: (u / g / m, m), "accumulate is a float, not an int"),
        (lambda u, g, m: (u // (g * m), m), "at least 1"),
        (lambda u, g, m: plan(u, g, m, lambda u, g, m: u // (g * m)), "division by zero; it takes"),
        (lambda u, g, m: plan(u, g, m)[::-1], "the number of batches comes first"),
        (lambda u, g, m: (math.ceil(u / (g * m)), m), "1 x 8,000 x 1 = 8,000 is too much"),
        (lambda u, g, m: plan(u, 1, m), "8 GPUs, .*; 128 x 3,584 x 8 = 3,670,016 is too much"),
        (lambda u, g, m: plan(u, g, m, rounded_down), "a batch of 57,344 does not fit"),
        (capped, "1 x 41,856 x 8 = 334,848 is too little"),
        (lambda u, g, m: plan(u, g, m, size=math.ceil), "19 x 8,049 x 3 = 458,793 is too much"),
        (
            lambda u, g, m: plan(u, g, m, lambda u, g, m: u // (g * m) + 1),
            "8 GPUs, at most 3,584 a batch: .*; 17 batches, 16 would do",
        ),
        (
            lambda u, g, m: plan(u, g, m, size=lambda n: int(n) // 64 * 64 or int(n)),
            "1 x 3,968 x 1 = 3,968, a larger batch",
        ),
    ],
}
