"""Right and wrong answers to the exercises on a translation system."""

import math
import re
from collections import Counter
from functools import partial

import numpy as np
import torch

from dynconv.decode.constraints import no_repeat
from dynconv.models.decoder import sinusoids
from dynconv.score import chrf
from dynconv.teach.check.translation import CHRF_FAULTS


def rates(half, last=1):
    return 10_000.0 ** (-torch.arange(half) / (half - last))


def turned(p, k, last=1, plus=1, minus=-1):
    half = p.shape[1] // 2
    b = k * rates(half, last)
    sine, cosine = p[:, :half], p[:, half:]
    up, down = sine * b.cos() + plus * cosine * b.sin(), cosine * b.cos() + minus * sine * b.sin()
    return torch.cat([up, down], dim=1)


def by_matrix(p, k):
    b = (k * rates(p.shape[1] // 2)).double()
    up, down = torch.diag(b.cos()), torch.diag(b.sin())
    return p @ torch.cat([torch.cat([up, -down], 1), torch.cat([down, up], 1)])


def by_complex(p, k):
    half = p.shape[1] // 2
    z = torch.complex(p[:, half:], p[:, :half]) * torch.exp(1j * k * rates(half).double())
    return torch.cat([z.imag, z.real], dim=1)


def by_angle(p, k):
    """The package's sinusoids of the position that the fastest and the slowest pair show."""
    half = p.shape[1] // 2
    t = torch.atan2(p[:, half - 1], p[:, -1]) / rates(half)[-1]
    return sinusoids(t.round() + k, p.shape[1])


def neighbours(p, k):
    b = k * rates(p.shape[1] // 2)
    sine, cosine = p[:, ::2], p[:, 1::2]
    turned = [sine * b.cos() + cosine * b.sin(), cosine * b.cos() - sine * b.sin()]
    return torch.stack(turned, dim=2).flatten(1)


def by_steps(done, lr, lr_end, warmup, period, grow):
    """All rates up to the one asked for."""
    rates = [lr * u / warmup for u in range(warmup)]
    while len(rates) <= done:
        for u in range(period):
            half = math.cos(math.pi * u / period / 2) ** 2
            rates.append(lr_end * (1 - half) + lr * half)
        period *= grow
    return rates[done]


def restarts(
    done, lr, lr_end, warmup, period, grow, *, late=0, last=0, half=0.5, ahead=0, warm_from=0.0
):
    """The solution; the options make mistakes."""
    if done < warmup:
        return warm_from * lr_end + (lr - warm_from * lr_end) * (done + ahead) / warmup
    u = done - warmup
    while u >= period + late:
        u -= period
        period *= grow
    return lr_end + (lr - lr_end) * (1 + math.cos(math.pi * u / (period - last))) * half


def one_cycle(done, lr, lr_end, warmup, period, grow, most=math.inf):
    if done < warmup:
        return lr * done / warmup
    p = min((done - warmup) / period, most)
    return lr_end + (lr - lr_end) * (1 + math.cos(math.pi * p)) / 2


def warm_again(done, lr, lr_end, warmup, period, grow):
    while done >= warmup + period:
        done, period = done - warmup - period, period * grow
    return restarts(done, lr, lr_end, warmup, period, grow)


def began_early(done, lr, lr_end, warmup, period, grow):
    return restarts(done, lr, lr_end, warmup if done < warmup else 0, period, grow)


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


def by_sets(logp, prefixes, all_hypotheses=False):
    """In place, each token tried; or each hypothesis forbidden what any has had."""
    for b in range(len(prefixes)):
        live = prefixes[b].tolist()
        had = [{*zip(ids, ids[1:], ids[2:], strict=False)} for ids in live]
        for h, ids in enumerate(live):
            forbidden = set().union(*had) if all_hypotheses else had[h]
            for token in range(logp.shape[2]):
                if (*ids[-2:], token) in forbidden:
                    logp[b, h, token] = -torch.inf
    return logp


def first_hypothesis(logp, prefixes):
    """One row's answer for all rows."""
    logp[:] = torch.where(in_loops(0 * logp.exp(), prefixes)[:1, :1].isneginf(), -torch.inf, logp)
    return logp


def without_short(logp, prefixes):
    newest = prefixes[0, 0][-2].item()
    return in_loops(logp, prefixes) if newest >= 0 else logp


def undone(logp, prefixes):
    """Undoes what was forbidden before."""
    return in_loops(logp, prefixes).where(logp > -torch.inf, torch.zeros(()))


def a_large_number(logp, prefixes):
    """Blocks with -1e9."""
    return logp.where(in_loops(logp, prefixes) == logp, torch.tensor(-1e9))


def by_counters(hypotheses, references, weight=4):
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
    return 100 * (1 + weight) * p * r / (weight * p + r) if p + r else 0


def by_ticking_off(hypotheses, references):
    sums = [[0, 0, 0] for _ in range(6)]
    for h, r in zip(hypotheses, references, strict=True):
        h, r = "".join(h.split()), "".join(r.split())
        for n in range(1, 7):
            left = [r[i : i + n] for i in range(len(r) - n + 1)]
            sums[n - 1][2] += len(left)
            for i in range(len(h) - n + 1):
                sums[n - 1][1] += 1
                if h[i : i + n] in left:
                    left.remove(h[i : i + n])
                    sums[n - 1][0] += 1
    orders = [order for order in sums if order[1] and order[2]]
    p = sum(found / mine for found, mine, _ in orders) / len(orders)
    r = sum(found / theirs for found, _, theirs in orders) / len(orders)
    return 0 if p == 0 else 100 / (1 / p + 4 / r) * 5


RIGHT = {
    "moved_positions": [turned, by_matrix, by_complex, by_angle],
    "schedule": [restarts, by_steps, lambda *a: torch.tensor(restarts(*a), dtype=torch.float64)],
    "block_trigrams": [in_loops, by_sets, no_repeat(3)],
    "chrf": [
        by_counters,
        by_ticking_off,
        lambda *texts: chrf(*texts).value,
        lambda *texts: np.float32(by_counters(*texts)),
    ],
}
SEEN = r"\[5, 6, 7, 5, 6\]"
WRONG = {
    "moved_positions": [
        (lambda p, k: turned(p, k)[:-1], r"shape \(4, 8\), not \(5, 8\)"),
        (lambda p, k: p, "nothing has moved"),
        (lambda p, k: p.roll(k, 0), "turn each row, do not shift them"),
        (lambda p, k: p.roll(-k, 0), "turn each row, do not shift them"),
        (lambda p, k: turned(p, -k), "moved by -2, not 2: it turns the wrong way"),
        (lambda p, k: p + sinusoids(torch.tensor([k]), p.shape[1]), "not sin a"),
        (lambda p, k: turned(p, k, minus=1), "mind the minus"),
        (lambda p, k: turned(p, k, plus=-1), "mind the plus"),
        (lambda p, k: sinusoids(torch.arange(len(p)) + k, p.shape[1]), r"\[7, 8, 9\].*position 0"),
        (lambda p, k: turned(p, k, last=0), r"not i / \(C / 2 - 1\)"),
        (neighbours, r"C / 2 \+ i, not its neighbour"),
        (lambda p, k: turned(p, k).roll(p.shape[1] // 2, 1), "cosines come first"),
        (lambda p, k: turned(p, 2 * k), r"k = 2: values differ first at \[0, 0\]: [^;]*$"),
    ],
    "schedule": [
        (one_cycle, "at done = 8 .*; no cycle follows the first$"),
        (partial(one_cycle, most=1), "at done = 8 .*; no cycle follows the first: the rate stays"),
        (partial(restarts, late=1), "at done = 8 .*, right 1; a cycle ends one update late"),
        (lambda *a: restarts(*a[:5], 1), "grow 2.*; every cycle is as long as the first"),
        (lambda u, lr, end, *a: restarts(u, lr, 0, *a), "the lowest rate is 0, not lr_end"),
        (partial(restarts, last=1), "lr_end belongs to the update after a cycle's last"),
        (partial(restarts, half=1), r"mine 2, right 1; 1 \+ cos goes up to 2"),
        (partial(restarts, ahead=1), "at done = 0 .*; the warm-up begins at 0, not at lr / warmup"),
        (partial(restarts, warm_from=1), "at done = 0 .*; the warm-up begins at 0, not at lr_end"),
        (lambda u, *a: restarts(u + 1, *a), "at done = 0 .* the update after"),
        (lambda u, lr, end, w, *a: restarts(u, lr, end, 0, *a), "there is no warm-up"),
        (warm_again, "every cycle has a warm-up, not only the first"),
        (began_early, "began before the end of the warm-up"),
        (lambda *a: 2 * restarts(*a), r"at done = 0 \(lr 1, lr_end 0.*\): mine 2, right 1$"),
    ],
    "block_trigrams": [
        (lambda logp, prefixes: logp[0], r"empty prefix: .* \(1, 8\), not \(2, 1, 8\)"),
        (lambda logp, prefixes: logp, rf"{SEEN}: 7 makes 5 6 7 again, and is not"),
        (partial(in_loops, n=2), r"\[5, 5\]: 5 is blocked, and 5 5 5 is no rep"),
        (partial(in_loops, n=4), rf"{SEEN}: 7 makes 5 6 7 again"),
        (partial(in_loops, first_only=True), r"6, 3, 5, 6\]: 3 makes 5 6 3 again, and is not"),
        (partial(by_sets, all_hypotheses=True), rf"{SEEN}: 3 is blocked, and 5 6 3 is no rep"),
        (first_hypothesis, r"\[5, 6, 3, 5, 6\]: 3 makes 5 6 3 again, and is not blocked"),
        (without_short, "an empty prefix: it raises IndexError in line .* of without_short"),
        (partial(in_loops, not_yet=1), r"\[5, 5\]: 5 is blocked, and 5 5 5 is no repetition"),
        (lambda *z: in_loops(*z).exp(), r"prefix \[\]: log p of 0 was .*, and should stay"),
        (lambda *z: in_loops(*z).clamp(min=-1e9), "mine -1e"),
        (a_large_number, r"mine -1e\+09, right -inf; .*: 7 makes 5 6 7 again, and is not blocked"),
        (undone, "mine 0, right -inf; .*log p of 2 was -inf"),
    ],
    "chrf": [
        *((fault, rf"; {re.escape(why)}$") for why, fault in CHRF_FAULTS.items()),
        (partial(by_counters, weight=2), "the 2 of the formula is not squared"),
        (lambda h, r: by_counters(r, h), "mine .*, right "),
        (lambda h, r: 1 / 0, "division by zero; an order may have no n-grams"),
    ],
}
