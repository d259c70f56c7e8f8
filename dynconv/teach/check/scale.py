"""Checks the exercises on training at scale: many processes, large texts, large batches."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from queue import Empty, Queue
from threading import Thread
from typing import NamedTuple

import torch
from torch import Tensor

from dynconv.teach.judge import (
    NotBegun,
    Wrong,
    attempt,
    describe_difference,
    judge,
    labelled,
    require_type_of,
    short_repr,
)
from dynconv.text.builders.steps import fits
from dynconv.text.lines import Row

WAIT = 5.0
"""seconds after which a message counts as lost"""


def ring_all_reduce(mine: Callable[..., Tensor]) -> None:
    """mine(x, rank, size, send, receive) returns on every rank the sum of all ranks' x (N).

    send(part) sends elements to the next rank, receive(n) waits for n elements from the previous.
    Each rank may send 2 (size - 1) of the `size` parts into which `tensor_split` cuts a vector.
    Here threads replace processes, and queues the network.
    """
    cases = [(1, 5), (2, 6), (3, 12), (4, 8), (4, 10), (5, 3)]
    for size, length in cases:
        with labelled(f"{size} process{'es' * (size > 1)}, {length} numbers"):
            check_ring(mine, size, length)
    print(f"right: {len(cases)} rings, no process sends more than 2 (n - 1) parts")


def check_ring(mine: Callable[..., Tensor], size: int, length: int) -> None:
    """Run all ranks at once; raise `Wrong` if one of them fails."""
    # Rank r contributes only to decimal digit r, which shows whose terms a wrong sum contains.
    vectors = 10.0 ** torch.arange(size)[:, None] * (1 + torch.arange(length) % 9)
    ring = Ring(mine, vectors.double())
    if ring.problems:
        rank, problem = min(ring.problems, key=lambda each: "no message" in str(each[1]))
        if isinstance(problem, NotBegun):
            raise problem
        raise Wrong(f"rank {rank}: {problem}") from problem.__cause__
    right = vectors.double().sum(dim=0)
    limit = 2 * (size - 1) * -(-length // size)

    def place(at: tuple[int]) -> str:
        return f"[{at[0]}], where rank r has {at[0] % 9 + 1} * 10^r"

    for rank, (result, sent) in enumerate(zip(ring.results, ring.sent, strict=True)):
        result = require_type_of(result, right, f"rank {rank} returns")
        if text := describe_difference(result, right, (0, 0), place, f"rank {rank} differs"):
            raise Wrong(text)
        if sent > limit:
            raise Wrong(f"rank {rank} sends {sent} numbers, {limit} are enough")
        if left := ring.queues[rank].qsize():
            raise Wrong(f"rank {rank} leaves {left} messages unread")


class Ring:
    """Runs all ranks at once; records what they return and send, and their errors."""

    def __init__(self, mine: Callable[..., Tensor], vectors: Tensor):
        self.mine, self.vectors, self.size = mine, vectors, len(vectors)
        self.queues = [Queue() for _ in vectors]
        self.sent = [0] * self.size
        self.results: list = [None] * self.size
        self.problems: list[tuple[int, Wrong]] = []
        threads = [Thread(target=self.run, args=(r,), daemon=True) for r in range(self.size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(2 * WAIT)
        if not self.problems and any(thread.is_alive() for thread in threads):
            rank = [thread.is_alive() for thread in threads].index(True)
            self.problems.append((rank, Wrong("it does not end")))

    def run(self, rank: int) -> None:
        """Run one rank."""

        def send(part: Tensor) -> None:
            if not isinstance(part, Tensor):
                raise Wrong(f"it sends {short_repr(part)}, not a tensor")
            self.sent[rank] += part.numel()
            self.queues[(rank + 1) % self.size].put(part.detach().clone())

        def receive(n: int) -> Tensor:
            try:
                part = self.queues[rank].get(timeout=WAIT)
            except Empty:
                raise Wrong("it waits, and no message comes") from None
            if part.numel() != n:
                raise Wrong(f"it asks for {n} numbers, and the message has {part.numel()}")
            return part

        arguments = self.vectors[rank].clone(), rank, self.size, send, receive
        try:
            self.results[rank] = attempt(partial(self.mine, *arguments))
        except Wrong as wrong:
            self.problems.append((rank, wrong))


LONGEST, RATIO = 6, 1.5
PAIRS = {
    "both sides of the same length": ("drei kleine wörter", "three little words"),
    "one side blank": ("", "nothing over there"),
    "the other side blank": ("nichts da", "   "),
    "both sides blank": ("", ""),
    "a ratio of exactly 1.5, the source longer": ("eins zwei drei", "one two"),
    "a ratio of exactly 1.5, the target longer": ("eins zwei", "one two three"),
    "the source twice as long": ("a b c d", "a b"),
    "the target twice as long": ("a b", "a b c d"),
    "three words and five": ("a b c", "a b c d e"),
    "as many words as may be": ("a b c d e f", "a b c d e f"),
    "one word too many on the source side": ("a b c d e f g", "a b c d e f"),
    "one word too many on the target side": ("a b c d e f", "a b c d e f g"),
    "many characters, few words": ("donaudampfschifffahrtsgesellschaft", "company"),
    "two words of 600 characters": (f"{'x' * 600} {'y' * 600}", "x y"),
    "several spaces between two words": ("eins    zwei", "one two"),
    "a word of 1,000 characters": ("x" * 1000, "y"),
    "a word of 1,001 characters": ("y", "x" * 1001),
    "a pair that was there before": ("drei kleine wörter", "three little words"),
}


def cleaned(mine: Callable[[Sequence[Row], int, float], Sequence[Row]]) -> None:
    """mine(pairs, longest, ratio) returns the clean pairs (source, target), unchanged and in order.

    In a clean pair each side has 1 to `longest` words of at most 1000 characters, and is at most
    `ratio` times as long as the other.
    """

    def answer(pairs: list[Row], longest: int, ratio: float) -> list:
        kept = mine(pairs, longest, ratio)
        kept = list(kept) if isinstance(kept, tuple | Iterator) else kept
        for pair in kept if isinstance(kept, list) else []:
            if not isinstance(pair, tuple | list) or len(pair) != 2:
                raise Wrong(f"it returns {short_repr(kept)}, not a list of pairs (source, target)")
        return [tuple(pair) for pair in kept] if isinstance(kept, list) else kept

    def right(pairs: list[Row], longest: int, ratio: float) -> list[Row]:
        return [pair for pair in pairs if fits(pair, longest, ratio)]

    cases = {about: ([pair], LONGEST, RATIO) for about, pair in PAIRS.items()}
    cases["three words to one, with other limits"] = [("a b c", "a")], 3, 3.0
    pairs = list(PAIRS.values())
    cases["all pairs together"] = pairs, LONGEST, RATIO
    by_zero = {ZeroDivisionError: "it divides by the length of an empty side"}
    judge(answer, right, cases, explain=explain_cleaning, raises=by_zero)
    kept = len(right(pairs, LONGEST, RATIO))
    print(f"right: it keeps {kept} of {len(pairs)} pairs, the same as the package")


def explain_cleaning(kept: list[Row], right: list[Row], pairs: list, longest, ratio) -> str:
    """Return which pair is wrongly kept or dropped."""
    if len(pairs) > 1:
        if sorted(kept) == sorted(right):
            return "they are in another order"
        if len(kept) < len(right):
            return f"{len(kept)} of the {len(right)} to keep: is a repeated pair lost?"
        return f"{len(kept)} pairs, not {len(right)}"
    limits = f"with at most {longest} words and a ratio of {ratio:g}"
    if not kept:
        return f"it drops the pair, which stays {limits}"
    if kept == pairs:
        return f"it keeps the pair, which goes {limits}"
    return "it returns neither the pair nor nothing"


class Plan(NamedTuple):
    """Batches for one update."""

    accumulate: int
    batch_tokens: int


UPDATES = [  # update_tokens, gpus, most_tokens
    (4_000, 1, 8_000),
    (458_752, 8, 3_584),
    (458_752, 1, 3_584),
    (458_752, 16, 3_584),
    (655_360, 8, 5_120),
    (458_752, 8, 41_856),
    (458_752, 3, 8_192),
    (100_000, 7, 3_000),
]


def accumulation(mine: Callable[[int, int, int], tuple[int, int]]) -> None:
    """mine(update_tokens, gpus, most_tokens) is (accumulate, batch_tokens).

    accumulate is the smallest number of batches per GPU with which an update can reach
    update_tokens although no batch exceeds most_tokens; batch_tokens is then the largest batch
    with which it does not exceed them.
    """

    def right(update: int, gpus: int, most: int) -> Plan:
        fewest = -(-update // (gpus * most))
        return Plan(fewest, update // (gpus * fewest))

    cases = {
        f"{update:,} tokens, {gpus} GPUs, at most {most:,} a batch": (update, gpus, most)
        for update, gpus, most in UPDATES
    }
    no_batch = {ZeroDivisionError: "it takes a batch at least"}
    judge(mine, right, cases, explain=explain_plan, raises=no_batch)
    print(f"right: {len(cases)} plans fit, and none of them could do with fewer batches")


def explain_plan(mine: Plan, right: Plan, update: int, gpus: int, most: int) -> str:
    """Return the first thing that is wrong with a plan."""
    batches, size = mine
    total = batches * size * gpus
    product = f"{batches} x {size:,} x {gpus} = {total:,}"
    wrongs = {
        "both must be at least 1": batches < 1 or size < 1,
        "the number of batches comes first": mine == right[::-1],
        f"a batch of {size:,} does not fit: more batches": size > most,
        f"{product} is too much": total > update,
        f"{batches} batches, {right.accumulate} would do": batches > right.accumulate,
        f"{product} is too little, it takes {right.accumulate} batches": batches < right.accumulate,
        f"{product}, a larger batch leaves less out": size < right.batch_tokens,
    }
    return next(text for text, applies in wrongs.items() if applies)
