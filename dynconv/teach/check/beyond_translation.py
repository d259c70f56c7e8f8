"""Checks the exercises beyond translation: adaptive softmax, ROUGE, the number of seeds."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from itertools import accumulate, chain, pairwise
from math import ceil
from statistics import NormalDist
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from dynconv.teach.judge import Wrong, attempt, judge

ROWS = 64
BANDS = [((0, 6, 40, 100), (8, 4, 2)), ((0, 5, 80), (8, 4))]
"""edges and widths of the bands"""


def adaptive_argmax(mine: Callable[..., Tensor]) -> None:
    """mine(hidden, words, projections, classes) returns the most likely type (N,) after hidden
    (N, C). It skips the softmax of a band whose class is less likely than a word of the head."""
    for seed, (edges, widths) in enumerate(BANDS):
        bands = draw_bands(edges, widths, seed)
        hidden = torch.randn(ROWS, widths[0], generator=torch.Generator().manual_seed(seed))
        words, classes, _ = compute_logits(hidden, *bands)
        needs_tail = words.max(-1).values <= classes.max(-1).values
        cases = {"all": hidden, "those without a tail": hidden[~needs_tail]}
        cases = {f"bands {edges}, rows: {k}": (rows, *bands) for k, rows in cases.items()}
        judge(mine, likeliest_words, cases, band_faults, explain=explain_band)
        check_cost(mine, hidden, *bands, int(needs_tail.sum()))
    print(f"right: the likeliest of all types in {2 * len(BANDS)} cases, and no tail in vain")


def draw_bands(edges, widths, seed: int) -> tuple[list[Tensor], list[Tensor], Tensor]:
    """Return E_i (V_i, w_i) per band, P_i (C, w_i) except the first, and classes (bands - 1, C).

    The logits are sharp enough that each band wins in some rows, even if another class is likelier.
    """
    g = torch.Generator().manual_seed(seed + 29)
    words = [
        (1.0 if i == 0 else 2.0) * torch.randn(end - start, width, generator=g)
        for i, ((start, end), width) in enumerate(zip(pairwise(edges), widths, strict=True))
    ]
    projections = [torch.randn(widths[0], w, generator=g) / 2 for w in widths[1:]]
    return words, projections, torch.randn(len(widths) - 1, widths[0], generator=g)


def compute_logits(
    hidden: Tensor, words, projections, classes
) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Return the logits of the first band's words (N, V_0), of the classes (N, n), and of each
    tail (N, V_i), in float64."""
    hidden, (first, *others) = hidden.double(), [E.double() for E in words]
    pairs = zip(projections, others, strict=True)
    tails = [hidden @ P.double() @ E.t() for P, E in pairs]
    return hidden @ first.t(), hidden @ classes.double().t(), tails


def log_probabilities(head: Tensor, tails: list[Tensor]) -> Tensor:
    """Return log p (N, V), given log p of words and classes (N, V_0 + n) and the tails' logits."""
    words, *classes = head.split([head.shape[1] - len(tails)] + [1] * len(tails), dim=-1)
    pairs = zip(classes, tails, strict=True)
    return torch.cat([words, *(row + tail.log_softmax(-1) for row, tail in pairs)], dim=-1)


def all_log_probabilities(hidden: Tensor, words, projections, classes) -> Tensor:
    *head, tails = compute_logits(hidden, words, projections, classes)
    return log_probabilities(torch.cat(head, dim=-1).log_softmax(-1), tails)


def likeliest_words(hidden: Tensor, words, projections, classes) -> Tensor:
    return all_log_probabilities(hidden, words, projections, classes).argmax(-1)


def band_edges(words: list[Tensor]) -> list[int]:
    """Return the first type of each band, and the number of all types."""
    return [0, *accumulate(map(len, words))]


def band_faults(hidden: Tensor, *bands) -> Iterator:
    """Yield what common mistakes return."""
    words, classes, tails = compute_logits(hidden, *bands)
    right, edges = likeliest_words(hidden, *bands), band_edges(bands[0])
    head = torch.cat([words, classes], dim=-1)
    chosen = head.argmax(-1)
    first = torch.tensor(edges)
    start = first[torch.bucketize(right, first, right=True) - 1]
    behind = right >= edges[1]
    yield "the row of a class in the head is not a type", chosen
    yield "the band's first type is to be added to the place in the band", right - start
    moved = torch.where(behind, right - start + edges[1], right)
    yield "each tail begins where the one before it ends", moved
    moved = torch.where(behind, right - edges[1], right)
    yield "the first tail begins after the words of the head", moved
    yield "the tails are ignored", words.argmax(-1)
    leads = classes == classes.amax(-1, keepdim=True)
    one = head.log_softmax(-1)
    one[:, edges[1] :].masked_fill_(~leads, -torch.inf)
    of_one = log_probabilities(one, tails).argmax(-1)
    yield "a band whose class is not the likeliest can hold the likeliest type", of_one
    by_rows = log_probabilities(head.log_softmax(0), tails).argmax(-1)
    yield "softmax along dim 0 compares rows, not types", by_rows
    greedy = chosen
    for i, tail in enumerate(tails):
        greedy = torch.where(chosen == edges[1] + i, edges[i + 1] + tail.argmax(-1), greedy)
    shared = "the likeliest class need not hold the likeliest word: p(band) is shared by its words"
    yield shared, greedy
    inner = [tail.log_softmax(-1) for tail in tails]
    alone = torch.cat([head.log_softmax(-1)[:, : edges[1]], *inner], dim=-1).argmax(-1)
    yield "p(w | band) is to be multiplied by p(band)", alone
    raw = [classes[:, i, None] + tail for i, tail in enumerate(tails)]
    by_logits = torch.cat([words, *raw], dim=-1).argmax(-1)
    yield "a tail's logits need its own softmax before they are compared", by_logits


def explain_band(mine: Tensor, right: Tensor, hidden: Tensor, *bands) -> str:
    """Return in words how the first wrong type relates to the right one."""
    row, edges = int((mine != right).nonzero()[0]), band_edges(bands[0])
    p = all_log_probabilities(hidden, *bands)[row, right[row]].exp()
    where = describe_relation(int(mine[row]), int(right[row]), edges)
    return f"type {right[row]} has p = {p:.2f}: {where}"


def describe_relation(mine: int, right: int, edges: list[int]) -> str:
    """Return in words how a wrong type relates to the right one."""
    if not 0 <= mine < edges[-1]:
        return f"types are 0 to {edges[-1] - 1}"
    of_mine, of_right = (bisect_right(edges, v) - 1 for v in (mine, right))
    if of_mine == of_right:
        return f"the right band, {of_right}, and the wrong place in it"
    if of_right == 0:
        return f"in band {of_mine}, p is p(class) times the softmax inside the band"
    row = edges[1] + of_right - 1
    return f"the right one is in band {of_right}, whose class is row {row} of the head"


def check_cost(mine, hidden: Tensor, words, projections, classes, needed: int) -> None:
    """Raise `Wrong` if tails are computed for rows that do not need one."""
    with FlopCounterMode(display=False) as counter:
        attempt(partial(mine, hidden, words, projections, classes))
    head = hidden.numel() * (len(words[0]) + len(classes))
    pairs = zip(projections, words[1:], strict=True)
    enough = head + needed * sum(P.numel() + E.numel() for P, E in pairs)
    # The head may be computed again where a tail is.
    if (count := counter.get_total_flops() // 2) > enough + head:
        raise Wrong(
            f"{count:,} multiplications, and {enough:,} are enough: {needed} of {len(hidden)} rows "
            "have a class likelier than every word of the head, and the others need no tail"
        )


Text = list[list[str]]
"""sentences of words"""

SUMMARIES = {
    "one sentence": (["maps of a cave"], ["maps of any cave now"]),
    "the order counts": (["c b a"], ["a b c"]),
    "sentences in another order": (["d e f", "a b c"], ["a b c", "d e f"]),
    "two sentences share one": (["a d x", "b d y z"], ["a b c d"]),
    "the first match is not the best": (["d a b c"], ["a b c d"]),
    "one word for two": (["a x"], ["a b", "a c"]),
    "all in common": (["a b", "a c"], ["a b", "a c"]),
    "two words for two": (["a a"], ["a b", "a c"]),
    "two references share one": (["a b c d e"], ["a b w", "d e v"]),
    "nothing in common": (["a b"], ["c"]),
    "no words": ([], ["a b"]),
}
"""sentences of the hypothesis and of the reference, keyed by name; no longest subsequence is a
choice that would change the result"""


class Rouge(NamedTuple):
    """ROUGE-L of a summary."""

    precision: float
    recall: float
    F: float

    @classmethod
    def of(cls, hits: int, hypothesis: Text, reference: Text) -> "Rouge":
        m, n = (sum(map(len, side)) for side in (hypothesis, reference))
        return cls(hits / max(m, 1), hits / max(n, 1), 2 * hits / max(m + n, 1))


def rouge_l(mine: Callable[[Text, Text], Rouge]) -> None:
    """mine(hypothesis, reference) is precision, recall and F of ROUGE-L over sentences."""

    def right(hypothesis: Text, reference: Text) -> Rouge:
        return Rouge.of(count_hits(hypothesis, reference), hypothesis, reference)

    cases = {
        f"{name}: hypothesis {sides[0]}, reference {sides[1]}": tuple(
            [line.split() for line in side] for side in sides
        )
        for name, sides in SUMMARIES.items()
    }
    zero = {ZeroDivisionError: "all three are 0 there"}
    judge(mine, right, cases, rouge_faults, raises=zero)
    print(f"right: {len(cases)} pairs of summaries")


def rouge_faults(hypothesis: Text, reference: Text) -> Iterator:
    """Yield what common mistakes return."""

    def whole(text: Text) -> Text:
        return [[*chain(*text)]]

    bags = [Counter(chain(*side)) for side in (hypothesis, reference)]
    each = [[len(lcs_places(h, r)) for h in hypothesis] for r in reference]
    counts = {
        "a word of the hypothesis counts more than once": union_matches(
            hypothesis, reference
        ).total(),
        "as if each side were one sentence": count_hits(whole(hypothesis), whole(reference)),
        "the order of the words does not count": (bags[0] & bags[1]).total(),
        "only the best sentence counts, not the union": sum(max(row, default=0) for row in each),
        "a place of the reference counts more than once": sum(map(sum, each)),
        "places of the hypothesis are united": count_hits(reference, hypothesis),
        "a word that occurs twice counts once": len(union_matches(hypothesis, reference)),
    }
    right = Rouge.of(count_hits(hypothesis, reference), hypothesis, reference)
    yield "precision and recall are exchanged", Rouge(right.recall, right.precision, right.F)
    for why, count in counts.items():
        yield why, Rouge.of(count, hypothesis, reference)


def count_hits(hypothesis: Text, reference: Text) -> int:
    """Return the size of the union of the longest common subsequences with each sentence.

    A word counts at most as often as it occurs in the hypothesis.
    """
    return (union_matches(hypothesis, reference) & Counter(chain(*hypothesis))).total()


def union_matches(hypothesis: Text, reference: Text) -> Counter[str]:
    """Return the words at the union of the places, without clipping."""
    words = Counter()
    for sentence in reference:
        united = set().union(*(lcs_places(line, sentence) for line in hypothesis))
        words.update(sentence[i] for i in united)
    return words


def lcs_places(hypothesis: list[str], reference: list[str]) -> set[int]:
    """Return the places in the reference of one longest common subsequence."""
    m, n = len(hypothesis), len(reference)
    length = [[0] * (n + 1) for _ in range(m + 1)]
    for i, a in enumerate(hypothesis, 1):
        for j, b in enumerate(reference, 1):
            away = max(length[i - 1][j], length[i][j - 1])
            length[i][j] = length[i - 1][j - 1] + 1 if a == b else away
    places = set()
    while m and n:
        if hypothesis[m - 1] == reference[n - 1]:
            m, n = m - 1, n - 1
            places.add(n)
        elif length[m - 1][n] >= length[m][n - 1]:
            m -= 1
        else:
            n -= 1
    return places


class Seeds(NamedTuple):
    """Computes the number of seeds; other arguments than the defaults are mistakes."""

    recipes: int = 2
    """recipes whose means scatter; 1 forgets one of them"""
    sign: int = 1
    """the sign of z_power"""
    sides: int = 2
    exponent: int = 2
    assumed: float | None = None
    """the power, whatever is requested"""
    sum_of_squares: bool = False
    whole: Callable[[float], float] = ceil
    least: int = 2

    def __call__(self, delta: float, sigma: float, power: float) -> float:
        """Return n of equation (31.3) of the book."""
        z = NormalDist().inv_cdf
        false, true = z(1 - 0.05 / self.sides), self.sign * z(self.assumed or power)
        both = false**2 + true**2 if self.sum_of_squares else (false + true) ** 2
        n = self.whole(self.recipes * both * (sigma / delta) ** self.exponent)
        return float(max(self.least, n))


SEED_FAULTS = {
    "the factor 2 is missing; both means scatter": Seeds(recipes=1),
    "the 5% lie on one side; z_0.975 leaves 2.5% on each": Seeds(sides=1),
    "the power is not used; half of the experiments would miss the difference": Seeds(assumed=0.5),
    "the power is taken as 0.8, whatever is asked for": Seeds(assumed=0.8),
    "sigma / delta is not squared": Seeds(exponent=1),
    "sigma / delta is upside down": Seeds(exponent=-2),
    "z_power is subtracted, or taken for 1 - power; add it": Seeds(sign=-1),
    "z_0.975 and z_power are squared one by one; add them first": Seeds(sum_of_squares=True),
    "not rounded up; n has to be at least as large as the right side": Seeds(whole=int),
    "not a whole number; round up": Seeds(whole=float),
    "one seed has no deviation; two at least": Seeds(least=1),
    "these are the seeds of both recipes; n is of each": Seeds(whole=lambda n: 2 * ceil(n)),
}


def seeds_needed(mine: Callable[[float, float, float], int]) -> None:
    """mine(delta, sigma, power) is the smallest n of equation (31.3) of the book, 2 at least."""
    numbers = (0.05, 0.36, 0.9), (0.3, 0.36, 0.8), (0.1, 0.36, 0.8), (0.5, 0.2, 0.95), (5, 0.1, 0.8)
    names = ("delta", "sigma", "power")
    cases = {
        ", ".join(f"{name} {x}" for name, x in zip(names, case, strict=True)): case
        for case in numbers
    }
    judge(mine, Seeds(), cases, SEED_FAULTS)
    print(f"right: {len(cases)} cases, of {Seeds()(*numbers[-1]):g} seeds and more")
