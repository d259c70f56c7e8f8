"""The check of the exercise on processes accepts the right, and says what is wrong."""

import pytest
import torch

from dynconv.teach import check
from dynconv.teach.check import distributed


def ring(x, rank, size, send, receive, start=0):
    parts = list(x.tensor_split(size))
    for step in range(size - 1):
        send(parts[(rank - step) % size])
        k = (rank - step - 1) % size
        parts[k] = parts[k] + receive(len(parts[k]))
    for step in range(size - 1):
        send(parts[(rank + 1 + start - step) % size])
        k = (rank + start - step) % size
        parts[k] = receive(len(parts[k]))
    return torch.cat(parts)


def in_place(x, rank, size, send, receive):
    parts = x.tensor_split(size)
    for step in range(2 * size - 2):
        send(parts[(rank - step) % size])
        k = (rank - step - 1) % size
        new = receive(len(parts[k]))
        parts[k].copy_(new + parts[k] if step < size - 1 else new)
    return x


def whole(x, rank, size, send, receive):
    total, passing = x, x
    for _ in range(size - 1):
        send(passing)
        passing = receive(len(x))
        total = total + passing
    return total


def one_round(x, rank, size, send, receive):
    parts = list(x.tensor_split(size))
    for step in range(size - 1):
        send(parts[(rank - step) % size])
        k = (rank - step - 1) % size
        parts[k] = parts[k] + receive(len(parts[k]))
    return torch.cat(parts)


def silent(x, rank, size, send, receive):
    if size > 1:
        receive(1)
    return x


def without_first(x, rank, size, send, receive):
    return ring(0 * x if rank == 0 else x, rank, size, send, receive)


def unread(x, rank, size, send, receive):
    out = ring(x, rank, size, send, receive)
    if rank == 0:
        send(x[:0])
    return out


@pytest.mark.parametrize("right", [ring, in_place])
def test_accepts(right, capsys):
    check.ring_all_reduce(right)
    assert capsys.readouterr().out.startswith("right: ")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda x, *_: None, "rank 0 returns a NoneType"),
        (whole, r"^3 processes, 12 numbers: rank 0 sends 24 numbers, 16 are enough"),
        (one_round, r"^2 processes, 6 numbers: rank 0 has \d+ at \[0\], not \d+"),
        (lambda *a: ring(*a) / a[2], r"^2 processes, 6 numbers: rank 0 has"),
        (lambda *a: ring(*a, start=-1), r"^2 processes, 6 numbers: rank 0 has"),
        (without_first, r"rank 0 has 0 at \[0\], not 1: rank r holds 1 \* 10\^r there"),
        (lambda *a: ring(*a).half(), "rank 0 returns torch.float16, and x is torch.float64"),
        (lambda *a: ring(*a)[:2], r"rank 0 has shape \(2,\), not \(5,\)"),
        (silent, "rank . waits, and no message comes"),
        (unread, "rank 1 leaves 1 messages unread|rank 0 leaves 1 messages unread"),
        (lambda x, r, n, s, g: s(x) or g(2), "asks for 2 numbers, and the message has 5"),
        (lambda x, r, n, s, g: x[99], "rank 0 raises IndexError"),
    ],
    ids=[
        "nothing",
        "whole vectors",
        "half of it",
        "mean",
        "wrong part",
        "a rank left out",
        "dtype",
        "shape",
        "silent",
        "unread",
        "length",
        "error",
    ],
)
def test_rejects(wrong, message, monkeypatch):
    monkeypatch.setattr(distributed, "WAIT", 0.3)
    with pytest.raises(AssertionError, match=message):
        check.ring_all_reduce(wrong)


def test_says_what_does_not_end(monkeypatch):
    monkeypatch.setattr(distributed, "WAIT", 0.1)
    import time

    with pytest.raises(AssertionError, match="rank 0 does not end"):
        check.ring_all_reduce(lambda x, *_: time.sleep(1))
