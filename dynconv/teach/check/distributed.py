"""The check of the exercise on processes: threads stand for them, queues for the network."""

from collections.abc import Callable
from queue import Empty, Queue
from threading import Thread

import torch
from torch import Tensor

WAIT = 5.0
"""seconds after which a message that has not come will not come"""


def ring_all_reduce(mine: Callable[..., Tensor]) -> None:
    """mine(x, rank, size, send, receive) returns on every rank the sum of all ranks' x (N).

    send(part) sends numbers to the next rank, receive(n) waits for n numbers from the one before.
    Each rank may send 2 (size - 1) parts of its vector, which `tensor_split` cut into `size`.
    """
    cases = [(1, 5), (2, 6), (3, 12), (4, 8), (4, 10), (5, 3)]
    for size, length in cases:
        case = f"{size} process{'es' * (size > 1)}, {length} numbers: "
        # one decimal digit for each rank, so that a wrong sum tells which ranks are in it
        vectors = 10.0 ** torch.arange(size)[:, None] * (1 + torch.arange(length) % 9)
        ring = _Ring(mine, vectors.double())
        if ring.problems:
            first = min(ring.problems, key=lambda problem: "no message" in problem[1])
            raise AssertionError(f"{case}rank {first[0]} {first[1]}")
        _compare(case, ring.results, vectors.double().sum(dim=0))
        most = 2 * (size - 1) * -(-length // size)
        for rank, sent in enumerate(ring.sent):
            if sent > most:
                raise AssertionError(f"{case}rank {rank} sends {sent} numbers, {most} are enough")
            if left := ring.queues[rank].qsize():
                raise AssertionError(f"{case}rank {rank} leaves {left} messages unread")
    print(f"right: {len(cases)} rings, no process sends more than 2 (n - 1) parts")


class _Ring:
    """All ranks run at once; what they return, what they sent, and what went wrong."""

    def __init__(self, mine: Callable[..., Tensor], vectors: Tensor):
        self.mine, self.vectors, self.size = mine, vectors, len(vectors)
        self.queues = [Queue() for _ in vectors]
        self.sent = [0] * self.size
        self.results: list = [None] * self.size
        self.problems: list[tuple[int, str]] = []
        threads = [Thread(target=self.one, args=(r,), daemon=True) for r in range(self.size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(2 * WAIT)
        if not self.problems and any(thread.is_alive() for thread in threads):
            rank = [thread.is_alive() for thread in threads].index(True)
            self.problems.append((rank, "does not end"))

    def one(self, rank: int) -> None:
        def send(part: Tensor) -> None:
            self.sent[rank] += part.numel()
            self.queues[(rank + 1) % self.size].put(part.detach().clone())

        def receive(n: int) -> Tensor:
            try:
                part = self.queues[rank].get(timeout=WAIT)
            except Empty:
                raise _Wrong("waits, and no message comes") from None
            if part.numel() != n:
                raise _Wrong(f"asks for {n} numbers, and the message has {part.numel()}")
            return part

        try:
            x = self.vectors[rank].clone()
            self.results[rank] = self.mine(x, rank, self.size, send, receive)
        except _Wrong as wrong:
            self.problems.append((rank, str(wrong)))
        except Exception as error:
            self.problems.append((rank, f"raises {type(error).__name__}: {error}"))


class _Wrong(Exception):
    """What the network refuses."""


def _compare(case: str, results: list, right: Tensor) -> None:
    for rank, result in enumerate(results):
        where = f"{case}rank {rank} "
        if not isinstance(result, Tensor):
            raise AssertionError(f"{where}returns a {type(result).__name__}, not a tensor")
        if result.shape != right.shape:
            raise AssertionError(f"{where}has shape {(*result.shape,)}, not {(*right.shape,)}")
        wrong = (result.double() != right).nonzero()
        if len(wrong):
            at = int(wrong[0])
            raise AssertionError(
                f"{where}has {result[at]:g} at [{at}], not {right[at]:g}: rank r holds "
                f"{at % 9 + 1} * 10^r there"
            )
        if result.dtype != right.dtype:
            raise AssertionError(f"{where}returns {result.dtype}, and x is {right.dtype}")
