"""The check of the exercise on averages accepts the right, and says what is wrong."""

import pytest
import torch
import torch.nn.functional as F

from dynconv.teach import check


def doubling(x, decay):
    out, reach = (1 - decay) * x, 1
    while reach < x.shape[1]:
        out = out + decay**reach * F.pad(out, (0, 0, reach, -reach))
        reach *= 2
    return out


def by_matrix(x, decay):
    at = torch.arange(x.shape[1], dtype=x.dtype)
    age = (at[:, None] - at).clamp(min=0)
    return ((1 - decay) * (decay**age).tril()) @ x


def by_matrix_in_float32(x, decay):
    return by_matrix(torch.eye(x.shape[1]), decay).to(x.dtype) @ x


def in_a_loop(x, decay):
    rows, mean = [], 0 * x[:, 0]
    for t in range(x.shape[1]):
        mean = decay * mean + (1 - decay) * x[:, t]
        rows.append(mean)
    return torch.stack(rows, dim=1)


def by_running_sum(x, decay):
    """Right on paper."""
    power = decay ** torch.arange(x.shape[1], dtype=x.dtype)[:, None]
    return (1 - decay) * power * (x / power).cumsum(dim=1)


@pytest.mark.parametrize("right", [doubling, by_matrix])
def test_accepts(right, capsys):
    check.exponential_average(right)
    assert capsys.readouterr().out.startswith("right: ")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda x, decay: None, "a NoneType, not a tensor"),
        (by_matrix_in_float32, r"T = 1, .*; as float32 they agree"),
        (in_a_loop, "T = 2000: .* a loop over positions"),
        (by_running_sum, r"T = 2000, decay = 0.5: .* mine (-?inf|nan)"),
        (lambda x, decay: doubling(x, decay) / (1 - decay), r"T = 1, .* first at \[0, 0, 0\]"),
        (lambda x, decay: doubling(x, 1 - decay), "T = 1, decay = 0.9: values differ"),
        (lambda x, decay: doubling(x.flip(1), decay).flip(1), r"T = 5, .* first at \[0, 0, 0\]"),
        (lambda x, decay: doubling(x, decay)[:, -1:], r"T = 5, .* shape \(2, 1, 3\)"),
    ],
    ids=[
        "nothing",
        "float32",
        "loop",
        "overflow",
        "not an average",
        "weights exchanged",
        "future",
        "last only",
    ],
)
def test_rejects(wrong, message):
    with pytest.raises(AssertionError, match=message) as error:
        check.exponential_average(wrong)
    assert ("float32" in str(error.value)) == ("float32" in message)
