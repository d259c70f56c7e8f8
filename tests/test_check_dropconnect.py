"""The check of the exercise on DropConnect accepts the right, and says what is wrong."""

import pytest
import torch

from dynconv.teach import check


def drawn(own, p, B, T, H, K):
    sizes = {"B": B, "T": T, "H": H, "K": K}
    shape = [size if letter in own else 1 for letter, size in sizes.items()]
    return ((torch.rand(shape) >= p) / (1 - p)).expand(B, T, H, K)


def swapped(own, p, B, T, H, K):
    """Own draws where they should be shared, and shared where they should be own."""
    return drawn([letter for letter in "BTHK" if letter not in own], p, B, T, H, K)


def seeded(own, p, **sizes):
    torch.manual_seed(0)
    return drawn(own, p, **sizes)


def test_accepts_the_right_and_leaves_the_generator_alone(capsys):
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    check.dropconnect_mask(drawn)
    assert torch.equal(torch.rand(1), expected)
    assert capsys.readouterr().out == "right: 16 laws, with p = 0 and p = 0.2\n"


@pytest.mark.parametrize("seed", range(20))
def test_accepts_the_right_whatever_it_draws(seed):
    """A right answer may call the generator in other ways, and then draws other masks."""

    def later(*args, **sizes):
        torch.rand(seed)
        return drawn(*args, **sizes)

    check.dropconnect_mask(later)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            lambda own, p, **n: drawn(own, p, **n) * (1 - p),
            "an entry is 1, and should be 0 or 1.25",
        ),
        (lambda own, p, **n: (drawn(own, p, **n) == 0) / (1 - p), "100% of 1 draws are 0, .* 0%"),
        (lambda own, p, **n: drawn(own, 4 * p, **n) * (1 - 4 * p) / (1 - p), "should be 20%"),
        (lambda own, p, **n: (mask := drawn(own, p, **n)) / (mask != 0), "an entry is nan"),
        (lambda own, p, **n: drawn("BTHK", p, **n), "sentences should share their draws"),
        (lambda own, p, **n: drawn("HK", p, **n), "heads should share their draws"),
        (lambda own, p, **n: drawn(set(own) - {"B"}, p, **n), "sentences share their draws"),
        (lambda own, p, **n: drawn(set(own) - {"T"}, p, **n), "positions share their draws"),
        (swapped, "own = '', p = 0.2: sentences should share"),
        (seeded, "the second call drops the same"),
        (lambda own, p, **n: drawn(own, p, **n) > 0, "the mask is torch.bool, not"),
        (lambda own, p, **n: None, "the mask is NoneType, not"),
        (
            lambda own, p, **n: drawn(own, p, **n)[:, :1],
            r"shape \(4, 1, 6, 9\), not \(4, 25, 6, 9\)",
        ),
    ],
    ids="unscaled kept share nan own shared no-B no-T swapped seeded bool none unexpanded".split(),
)
def test_rejects(wrong, message):
    with pytest.raises(AssertionError, match=message):
        check.dropconnect_mask(wrong)
