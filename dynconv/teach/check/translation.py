"""Checks the exercises on a translation system: positions, schedules, search and chrF."""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from dynconv.teach.judge import FLOAT32, attempt, judge, require_type_of


def sinusoids(t: Tensor, channels: int, *, last: int = 1) -> Tensor:
    """Return (T, C) of positions t (T,) in float64; rates end at 10,000 ** (last / (C / 2) - 1)."""
    half = channels // 2
    rate = 10_000.0 ** (-torch.arange(half, dtype=torch.float64) / (half - last))
    angle = t.double()[:, None] * rate
    return torch.cat([angle.sin(), angle.cos()], dim=1)


def rotate_pairs(p: Tensor, shift: Tensor, plus: int = 1, minus: int = -1) -> Tensor:
    """Return p (T, C), each pair of channels i and C / 2 + i rotated by `shift` (1, C)."""
    (s, c), (a, b) = p.chunk(2, dim=1), shift.chunk(2, dim=1)
    return torch.cat([s * b + plus * c * a, c * b + minus * s * a], dim=1)


def moved_positions(mine: Callable[[Tensor, int], Tensor]) -> None:
    """mine(p, k) moves the sinusoids p (T, C), row n for position t_n, on to positions t_n + k.

    The channels are C / 2 sines, then as many cosines, of rates from 1 to 1 / 10,000.
    """
    cases = {}
    for positions, C, k in (([0, 1, 2, 3, 4], 8, 2), ([7, 8, 9], 16, -3), ([40, 3, 11, 3], 6, 25)):
        t = torch.tensor(positions)
        cases[f"positions {positions}, C = {C}, k = {k}"] = sinusoids(t, C), k, t

    def right(p: Tensor, k: int, t: Tensor) -> Tensor:
        return sinusoids(t + k, p.shape[1])

    def answer(p: Tensor, k: int, t: Tensor) -> Tensor:
        return mine(p, k)

    as_near_as_angles = (1e-5, 1e-4)  # in float32
    judge(answer, right, cases, position_faults, tolerance=as_near_as_angles)
    print(f"right: {len(cases)} tables of positions")


def position_faults(p: Tensor, k: int, t: Tensor) -> Iterator:
    """Yield what common mistakes return."""
    C = p.shape[1]
    by = sinusoids(torch.tensor([k]), C)
    yield "nothing has moved", p
    for rows in (-k, k):
        shifted = "rows are not neighbours in time: turn each row, do not shift them"
        yield shifted, p.roll(rows, 0)
    yield f"moved by {-k}, not {k}: it turns the wrong way", sinusoids(t - k, C)
    yield "sin(a + b) is not sin a + sin b", p + by
    cosine = "cos(a + b) is cos a cos b - sin a sin b: mind the minus"
    yield cosine, rotate_pairs(p, by, minus=1)
    yield "sin(a + b) is sin a cos b + cos a sin b: mind the plus", rotate_pairs(p, by, plus=-1)
    yield "the first row need not be position 0", sinusoids(torch.arange(len(p)) + k, C)
    other_rates = sinusoids(torch.tensor([k]), C, last=0)
    rates = "the rates have the exponent i / (C / 2), not i / (C / 2 - 1)"
    yield rates, rotate_pairs(p, other_rates)
    pairs = p.unflatten(1, (-1, 2)).mT.flatten(1)  # as if sine and cosine were neighbours
    neighbours = rotate_pairs(pairs, by).unflatten(1, (2, -1)).mT.flatten(1)
    yield "the partner of channel i is C / 2 + i, not its neighbour", neighbours
    exchanged = sinusoids(t + k, C).roll(C // 2, 1)
    yield "cosines come first: the halves are exchanged", exchanged


Schedule = Callable[[int, float, float, int, int, int], float]
SCHEDULES = [  # lr, lr_end, warmup, period, grow
    (1.0, 0.0, 0, 8, 1),
    (1.0, 0.2, 4, 10, 1),
    (3e-3, 1e-4, 5, 6, 2),
    (1.0, 0.1, 3, 4, 3),
]


def restarts(
    done,
    lr,
    lr_end,
    warmup,
    period,
    grow,
    *,
    warm_from=0.0,
    ahead=0,
    late=0.0,
    last=0,
    longest=math.inf,
    half=0.5,
    warm_again=False,
) -> float:
    """Return the learning rate of a schedule. Other options than the defaults are mistakes."""
    while done >= warmup + period + late:
        done, period = done - period, period * grow
        done -= warmup * warm_again
    if done < warmup:
        return warm_from * lr_end + (lr - warm_from * lr_end) * (done + ahead) / warmup
    p = min((done - warmup) / (period - last), longest)
    return lr_end + (lr - lr_end) * (1 + math.cos(math.pi * p)) * half


SCHEDULE_FAULTS: dict[str, Schedule] = {
    "no cycle follows the first": partial(restarts, late=math.inf),
    "no cycle follows the first: the rate stays at lr_end": partial(
        restarts, late=math.inf, longest=1.0
    ),
    "a cycle ends one update late": partial(restarts, late=1),
    "lr_end belongs to the update after a cycle's last": partial(restarts, last=1),
    "1 + cos goes up to 2: half of it is missing": partial(restarts, half=1),
    "the warm-up begins at 0, not at lr / warmup": partial(restarts, ahead=1),
    "the warm-up begins at 0, not at lr_end": partial(restarts, warm_from=1.0),
    "every cycle is as long as the first": lambda u, *a: restarts(u, *a[:4], 1),
    "the lowest rate is 0, not lr_end": lambda u, lr, end, *a: restarts(u, lr, 0.0, *a),
    "it is the rate of the update after": lambda u, *a: restarts(u + 1, *a),
    "there is no warm-up": lambda u, lr, end, w, *a: restarts(u, lr, end, 0, *a),
    "every cycle has a warm-up, not only the first": partial(restarts, warm_again=True),
    "the first cycle began before the end of the warm-up": (
        lambda u, lr, end, w, *a: restarts(u, lr, end, w if u < w else 0, *a)
    ),
}


def schedule(mine: Schedule) -> None:
    """mine(done, lr, lr_end, warmup, period, grow) is the learning rate after `done` updates.

    It grows linearly from 0 to lr in `warmup` updates, then falls by half a cosine towards lr_end
    within `period` updates. Then it restarts at lr, with a period that is `grow` times as long.
    """
    points = [(done, *options) for options in SCHEDULES for done in range(60)]

    def where(at: tuple[int]) -> str:
        done, *options = points[at[0]]
        names = ("lr", "lr_end", "warmup", "period", "grow")
        text = ", ".join(f"{name} {x:g}" for name, x in zip(names, options, strict=True))
        return f"done = {done} ({text})"

    def rates(f: Schedule) -> Tensor:
        values = []
        for point in points:
            rate = attempt(partial(f, *point))
            values.append(require_type_of(rate, 0.0, f"at done = {point[0]} it returns"))
        return torch.tensor(values, dtype=torch.float64)

    faults = {why: partial(rates, fault) for why, fault in SCHEDULE_FAULTS.items()}
    answers = partial(rates, mine), partial(rates, restarts)
    judge(*answers, {"": ()}, faults, tolerance=(1e-6, 1e-12), place=where)
    print(f"right: {len(points)} rates of {len(SCHEDULES)} schedules")


PREFIXES = {
    "an empty prefix": [[]],
    "a prefix of one token": [[5]],
    "a prefix of two tokens": [[5, 5]],
    "one trigram": [[5, 6, 7, 5, 6]],
    "only a bigram again": [[5, 6, 5]],
    "three times the same": [[4, 4, 4]],
    "two that it began": [[5, 6, 7, 5, 6, 3, 5, 6]],
    "the first trigram of many": [[3, 4, 5, 6, 7, 2, 3, 4]],
    "each hypothesis has its own": [[5, 6, 7, 5, 6], [5, 6, 3, 5, 6], [7, 6, 5, 6, 7]],
}
"""the hypotheses of one sentence; ids of 8 types"""


def block_trigrams(mine: Callable[[Tensor, Tensor], Tensor]) -> None:
    """mine(logp, prefixes) returns log p (B, live, V) with -inf for tokens that repeat a trigram.

    These are the tokens that would complete a trigram which already occurs in the prefix
    (B, live, t).
    """
    cases = {}
    for name, live in PREFIXES.items():
        prefixes = torch.tensor([live, live[::-1]], dtype=torch.int64)
        seed = torch.Generator().manual_seed(prefixes.shape[2])
        logp = torch.randn(*prefixes.shape[:2], 8, generator=seed).log_softmax(-1)
        logp[0, 0, 2] = -torch.inf  # forbidden before
        cases[name] = logp, prefixes
    judge(mine, blocked, cases, explain=explain_block, tolerance=(0, 0), in_place=True)
    print(f"right: {len(cases)} cases, each for two sentences")


def blocked(logp: Tensor, prefixes: Tensor) -> Tensor:
    """Return log p with -inf for tokens that repeat a trigram."""
    logp, t = logp.clone(), prefixes.shape[2]
    for end in range(2, t):
        again = (prefixes[..., end - 2 : end] == prefixes[..., t - 2 :]).all(-1)
        b, h = again.nonzero(as_tuple=True)
        logp[b, h, prefixes[b, h, end]] = -torch.inf
    return logp


def explain_block(mine: Tensor, right: Tensor, logp: Tensor, prefixes: Tensor) -> str:
    """Return what is wrong with the first wrong log p."""
    b, h, token = (mine != right).nonzero()[0].tolist()
    before, ids = logp[b, h, token], prefixes[b, h].tolist()
    trigram = " ".join(map(str, [*ids[-2:], token]))
    if right[b, h, token] != before:
        return f"prefix {ids}: {token} makes {trigram} again, and is not blocked"
    if mine[b, h, token] == -torch.inf:
        return f"prefix {ids}: {token} is blocked, and {trigram} is no repetition"
    return f"prefix {ids}: log p of {token} was {before:.3g}, and should stay"


class ChrF(NamedTuple):
    """Computes chrF; other arguments than the defaults are mistakes."""

    first: int = 1
    orders: int = 6
    beta: float = 2
    scale: float = 100
    spaces: bool = False
    lower: bool = False
    clip: bool = True
    mean_of_sentences: bool = False
    f_of_each_order: bool = False
    missing_orders: bool = False
    half_missing_orders: bool = False

    def __call__(self, hypotheses: Sequence[str], references: Sequence[str]) -> float:
        """Return the score of the corpus, 0 to `scale`."""
        pairs = list(zip(hypotheses, references, strict=True))
        if self.mean_of_sentences:
            one_by_one = self._replace(mean_of_sentences=False)
            return sum(one_by_one([h], [r]) for h, r in pairs) / len(pairs)
        P, R = [], []
        for n in range(self.first, self.orders + 1):
            matches = mine = theirs = 0
            for pair in pairs:
                h, r = (self.n_grams(line, n) for line in pair)
                matches += (h & r).total() if self.clip else sum(h[gram] for gram in h if gram in r)
                mine, theirs = mine + h.total(), theirs + r.total()
            if mine and theirs:
                P.append(matches / mine)
                R.append(matches / theirs)
            elif self.missing_orders:
                P.append(0)
                R.append(0)
            elif self.half_missing_orders:
                P += [0] if mine else []
                R += [0] if theirs else []
        if self.f_of_each_order:
            return sum(map(self.f_score, P, R)) / len(P)
        return self.f_score(sum(P) / len(P), sum(R) / len(R))

    def n_grams(self, line: str, n: int) -> Counter:
        """Count the n-grams of characters."""
        line = line.lower() if self.lower else line
        text = line if self.spaces else "".join(line.split())
        return Counter(text[i : i + n] for i in range(len(text) - n + 1))

    def f_score(self, p: float, r: float) -> float:
        """Return the F score of a precision and a recall."""
        weight = self.beta**2
        return self.scale * (1 + weight) * p * r / (weight * p + r) if p + r else 0.0


CHRF_FAULTS = {
    "the mean of the sentences' scores; add up their counts first": ChrF(mean_of_sentences=True),
    "beta = 1; recall weighs twice as much, beta = 2": ChrF(beta=1),
    "beta = 1/2; recall is the one that weighs more, not precision": ChrF(beta=0.5),
    "the 2 of the formula is not squared": ChrF(beta=2**0.5),
    "spaces are counted as characters; drop them": ChrF(spaces=True),
    "matches are not clipped by the count in the reference": ChrF(clip=False),
    "an F-score of each order and their mean; mean precision and mean recall come first": ChrF(
        f_of_each_order=True
    ),
    "n-grams of 1 to 4 characters; chrF has 1 to 6": ChrF(orders=4),
    "n-grams of 1 to 5 characters; chrF has 1 to 6": ChrF(orders=5),
    "n-grams of 0 to 5 characters; chrF has 1 to 6": ChrF(first=0, orders=5),
    "upper and lower case are the same; chrF tells them apart": ChrF(lower=True),
    "an order without n-grams on either side counts as 0; leave it out of the means": ChrF(
        missing_orders=True
    ),
    "an order with n-grams on one side only counts there; leave it out of both means": (
        ChrF(half_missing_orders=True)
    ),
    "it goes from 0 to 1, and should to 100": ChrF(scale=1),
}

TEXTS = {
    "a word": (["kernel"], ["kernels"]),
    "a word three times": (["padding padding padding"], ["padding is no word"]),
    "a short output": (["We count by hand."], ["We count all of the weights by hand once."]),
    "a long output": (["We count all of the weights by hand once."], ["We count by hand."]),
    "two letters": (["ab"], ["ac"]),
    "two letters of six": (["ab"], ["abcdef"]),
    "upper case": (["THE Window slides"], ["The window slides on"]),
    "three sentences": (
        ["The kernel slides over it.", "Padding no word is.", "A wider window sees the rest"],
        ["The kernel slides along the sentence.", "Padding is no word.", "Wider windows see more."],
    ),
    "nothing in common": (["window"], ["kuchuk"]),
}


def chrf(mine: Callable[[Sequence[str], Sequence[str]], float]) -> None:
    """mine(hypotheses, references) is corpus chrF2, 0 to 100."""
    cases = {f"{name}, {h[0]!r} for {r[0]!r}": (h, r) for name, (h, r) in TEXTS.items()}
    no_n_grams = {ZeroDivisionError: "an order may have no n-grams"}
    judge(mine, ChrF(), cases, CHRF_FAULTS, tolerance=FLOAT32, raises=no_n_grams)
    print(f"right: {len(cases)} cases, one of several sentences")
