"""The check of the exercise on positions accepts the right, and says what is wrong."""

import pytest
import torch

from dynconv.models.seq2seq import sinusoids
from dynconv.teach import check


def rates(half, last=1):
    return 10_000.0 ** (-torch.arange(half) / (half - last))


def turned(p, k, last=1):
    half = p.shape[1] // 2
    b = k * rates(half, last)
    sine, cosine = p[:, :half], p[:, half:]
    return torch.cat([sine * b.cos() + cosine * b.sin(), cosine * b.cos() - sine * b.sin()], dim=1)


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


@pytest.mark.parametrize("right", [turned, by_matrix, by_complex, by_angle])
def test_accepts(right, capsys):
    check.moved_positions(right)
    assert capsys.readouterr().out.startswith("right: ")


def signs(p, k, plus, minus):
    """turned, for plus = 1 and minus = -1."""
    b = k * rates(p.shape[1] // 2)
    sine, cosine = p.chunk(2, dim=1)
    up = sine * b.cos() + plus * cosine * b.sin()
    return torch.cat([up, cosine * b.cos() + minus * sine * b.sin()], dim=1)


def neighbours(p, k):
    b = k * rates(p.shape[1] // 2)
    sine, cosine = p[:, ::2], p[:, 1::2]
    turned = [sine * b.cos() + cosine * b.sin(), cosine * b.cos() - sine * b.sin()]
    return torch.stack(turned, dim=2).flatten(1)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda p, k: None, "a NoneType, not a tensor"),
        (lambda p, k: turned(p, k)[:-1], r"shape \(4, 8\), not \(5, 8\)"),
        (lambda p, k: p, "nothing has moved"),
        (lambda p, k: p.roll(k, 0), "turn each row, do not shift them"),
        (lambda p, k: p.roll(-k, 0), "turn each row, do not shift them"),
        (lambda p, k: turned(p, -k), "moved by -2, not 2: it turns the wrong way"),
        (lambda p, k: p + sinusoids(torch.tensor([k]), p.shape[1]), "not sin a"),
        (lambda p, k: signs(p, k, 1, 1), "mind the minus"),
        (lambda p, k: signs(p, k, -1, -1), "mind the plus"),
        (lambda p, k: sinusoids(torch.arange(len(p)) + k, p.shape[1]), r"\[7, 8, 9\].*position 0"),
        (lambda p, k: turned(p, k, last=0), r"not i / \(C / 2 - 1\)"),
        (neighbours, r"C / 2 \+ i, not its neighbour"),
        (lambda p, k: turned(p, k).roll(p.shape[1] // 2, 1), "cosines come first"),
        (lambda p, k: turned(p, 2 * k), r"k = 2: differ first at \[0, 0\]"),
    ],
    ids=[
        "nothing",
        "last missing",
        "not moved",
        "rolled",
        "rolled back",
        "backwards",
        "added",
        "sign of the cosine",
        "sign of the sine",
        "from zero",
        "rates",
        "neighbours",
        "halves",
        "twice",
    ],
)
def test_rejects(wrong, message):
    with pytest.raises(AssertionError, match=message):
        check.moved_positions(wrong)
