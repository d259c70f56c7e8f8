"""Right and wrong answers to the exercises on a translation system."""

import math
from collections import Counter
from functools import partial

import numpy as np
import torch

from dynconv.decode.constraints import no_repeat
from dynconv.models.embedding import sinusoids
from dynconv.score import chrf


def rates(half):
    return 10_000.0 ** (-torch.arange(half) / (half - 1))


def turned(p, k):
    half = p.shape[1] // 2
    b = k * rates(half)
    sine, cosine = p[:, :half], p[:, half:]
    parts = [sine * b.cos() + cosine * b.sin(), cosine * b.cos() - sine * b.sin()]
    return torch.cat(parts, dim=1)


def by_angle(p, k):
    """The package's sinusoids of the position that the fastest and the slowest pair show."""
    half = p.shape[1] // 2
    t = torch.atan2(p[:, half - 1], p[:, -1]) / rates(half)[-1]
    return sinusoids(t.round() + k, p.shape[1])


def by_steps(done, lr, lr_end, warmup, period, grow):
    """All rates up to the one asked for."""
    rates = [lr * u / warmup for u in range(warmup)]
    while len(rates) <= done:
        for u in range(period):
            half = math.cos(math.pi * u / period / 2) ** 2
            rates.append(lr_end * (1 - half) + lr * half)
        period *= grow
    return rates[done]


def in_loops(logp, prefixes, n=3, first_only=False, not_yet=0):
    """No n-gram twice; the options make mistakes."""
    logp = logp.clone()
    for b in range(len(prefixes)):
        for h, ids in enumerate(prefixes[b].tolist()):
            for i in range(len(ids) - n + 1 + not_yet):
                if ids[i : i + n - 1] == ids[len(ids) - n + 1 :]:
                    logp[b, h, ids[min(i + n - 1, len(ids) - 1)]] = -torch.inf
                    if first_only:
                        break
    return logp


def shared(which):
    """All hypotheses are forbidden `which` of the tokens that one of them would repeat."""

    def answer(logp, prefixes):
        forbidden = in_loops(torch.zeros_like(logp), prefixes).isneginf()  # (B, live, V)
        return logp.masked_fill(which(forbidden), -torch.inf)

    return answer


def without_short(logp, prefixes):
    newest = prefixes[0, 0][-2].item()
    return in_loops(logp, prefixes) if newest >= 0 else logp


def by_counters(hypotheses, references):
    P, R = [], []
    for n in range(1, 7):
        counts = [0, 0, 0]
        for pair in zip(hypotheses, references, strict=True):
            joined = [line.replace(" ", "") for line in pair]
            h, r = (Counter(x[i : i + n] for i in range(len(x) - n + 1)) for x in joined)
            counts = [a + b.total() for a, b in zip(counts, (h & r, h, r), strict=True)]
        if counts[1] and counts[2]:
            P.append(counts[0] / counts[1])
            R.append(counts[0] / counts[2])
    p, r = sum(P) / len(P), sum(R) / len(R)
    return 100 * 5 * p * r / (4 * p + r) if p + r else 0


RIGHT = {
    "moved_positions": [turned, by_angle],
    "schedule": [by_steps, lambda *a: torch.tensor(by_steps(*a), dtype=torch.float64)],
    "block_trigrams": [in_loops, no_repeat(3)],
    "chrf": [
        by_counters,
        lambda *texts: chrf(*texts).value,
        lambda *texts: np.float32(by_counters(*texts)),
    ],
}
SEEN = r"\[5, 6, 7, 5, 6\]"
WRONG = {
    "moved_positions": [
        (lambda p, k: turned(p, 2 * k), r"k = 2: values differ first at \[0, 0\]: [^;]*$"),
    ],
    "schedule": [
        (lambda *a: 2 * by_steps(*a), r"at done = 0 \(lr 1, lr_end 0.*\): mine 2, right 1$"),
    ],
    "block_trigrams": [
        (lambda logp, prefixes: logp, rf"{SEEN}: 7 makes 5 6 7 again, and is not"),
        (partial(in_loops, n=2), r"\[5, 5\]: 5 is blocked, and 5 5 5 is no rep"),
        (partial(in_loops, n=4), rf"{SEEN}: 7 makes 5 6 7 again"),
        (partial(in_loops, first_only=True), r"6, 3, 5, 6\]: 3 makes 5 6 3 again, and is not"),
        (
            shared(lambda forbidden: forbidden.any(1, keepdim=True)),
            rf"{SEEN}: 3 is blocked, and 5 6 3 is no rep",
        ),
        (
            shared(lambda forbidden: forbidden[:, :1]),
            r"\[5, 6, 3, 5, 6\]: 3 makes 5 6 3 again, and is not blocked",
        ),
        (without_short, "an empty prefix: it raises IndexError in line .* of without_short"),
        (partial(in_loops, not_yet=1), r"\[5, 5\]: 5 is blocked, and 5 5 5 is no repetition"),
        (lambda *z: in_loops(*z).exp(), r"prefix \[\]: log p of 0 was .*, and should stay"),
        (lambda *z: in_loops(*z).clamp(min=-1e9), "mine -1e"),
        (lambda *z: in_loops(*z).clamp(max=0, min=-1e9).where(z[0] > -torch.inf, z[0]), SEEN),
        (lambda *z: in_loops(*z).where(z[0] > -torch.inf, torch.zeros(())), "log p of 2 was -inf"),
    ],
    "chrf": [
        (lambda h, r: by_counters(r, h), "mine .*, right "),
        (lambda h, r: 1 / 0, "division by zero; an order may have no n-grams"),
    ],
}
