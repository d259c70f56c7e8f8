"""The check of the exercise on the mixing matrix accepts the right, and says what is wrong."""

import pytest
import torch

from dynconv.teach import check, mixing_matrix


def as_rows(mix, T):
    return mixing_matrix(mix, T).T


def in_one_batch(mix, T):
    return mix(torch.eye(T)[..., None])[..., 0].T


def without_a_batch(mix, T):
    return torch.stack([mix(row[:, None])[:, 0] for row in torch.eye(T)], dim=1)


def one_short(mix, T):
    return torch.stack([mix(torch.eye(T)[s, None, :, None])[0, :, 0] for s in range(T - 1)], dim=1)


def in_one_buffer(mix, T):
    """The impulses of before are never taken back."""
    z, columns = torch.zeros(1, T, 1), []
    for s in range(T):
        z[0, s, 0] = 1
        columns.append(mix(z)[0, :, 0])
    return torch.stack(columns, dim=1)


def in_double(mix, T):
    eye = torch.eye(T, dtype=torch.float64)
    return torch.stack([mix(eye[s, None, :, None])[0, :, 0] for s in range(T)], dim=1)


@pytest.mark.parametrize("right", [mixing_matrix, in_double])
def test_mixing_exercise_accepts_the_right(right, capsys):
    check.mixing_matrix(right)
    assert capsys.readouterr().out == "right: the matrices of 6 mixers agree\n"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (as_rows, r"^the word before: differs first at \[0, 1\]: .* fills column s$"),
        (in_one_batch, r"the mixer wants \(1, 3, 1\), not \(3, 3, 1\)"),
        (without_a_batch, r"the mixer wants \(1, 3, 1\), not \(3, 1\)"),
        (one_short, r"the matrix is \(3, 2\), not \(3, 3\)"),
        (in_one_buffer, r"returns its input: differs first at \[0, 1\]: mine 1, right 0$"),
        (lambda mix, T: torch.eye(T), r"the word before: differs first at \[0, 0\]"),
        (lambda mix, T: None, r"the matrix is NoneType, not \(3, 3\)"),
    ],
    ids=["transposed", "batch", "no batch", "a column short", "buffer", "identity", "nothing"],
)
def test_mixing_exercise_rejects(wrong, message):
    with pytest.raises(AssertionError, match=message):
        check.mixing_matrix(wrong)
