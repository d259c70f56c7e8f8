"""The check of the exercise on the LightConv module."""

import pytest
import torch

from dynconv import ops
from dynconv.teach import check


def folded(W_in, kernel, W_out):
    return torch.einsum("oc,cj,ci->oij", W_out, spread(kernel, len(W_in)), W_in)


def spread(kernel, C):
    return kernel.repeat_interleave(C // len(kernel), dim=0)


def probed(W_in, kernel, W_out):
    """The same, from the module's answers to impulses."""
    C, K = len(W_in), kernel.shape[1]
    impulses = torch.zeros(C, 2 * K - 1, C).to(W_in)
    impulses[range(C), K - 1, range(C)] = 1
    out = ops.light_conv(impulses @ W_in.T, kernel, pad_left=K - 1) @ W_out.T  # (C in, T, C out)
    return out[:, K - 1 :].flip(1).permute(2, 0, 1)


@pytest.mark.parametrize("right", [folded, probed])
def test_folded_accepts(right, capsys):
    check.folded(right)
    assert capsys.readouterr().out == "right: values and 3 gradients agree on 4 cases\n"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            lambda W_in, kernel, W_out: folded(W_in, kernel, W_out).transpose(0, 1),
            r"C = 6, H = 3, K = 5: values differ first at \[0, 1, 0\]",
        ),
        (
            lambda W_in, kernel, W_out: torch.einsum(
                "oc,cj,ci->oij", W_out, kernel.repeat(len(W_in) // len(kernel), 1), W_in
            ),
            "C = 6, H = 3, K = 5: values differ first",
        ),
        (
            lambda W_in, kernel, W_out: folded(W_in, kernel.softmax(1), W_out),
            "C = 6, H = 3, K = 5: values differ first",
        ),
        (
            lambda W_in, kernel, W_out: folded(W_in, kernel.flip(1), W_out),
            "C = 6, H = 3, K = 5: values differ first",
        ),
        (
            lambda W_in, kernel, W_out: folded(W_in, kernel, W_out).movedim(2, 0),
            r"mine has shape \(5, 6, 6\), not \(6, 6, 5\)",
        ),
        (
            lambda W_in, kernel, W_out: folded(W_in, kernel.detach(), W_out),
            "C = 6, H = 3, K = 5: gradients of floating input 1 differ first",
        ),
    ],
    ids=["transposed", "interleaved", "softmax twice", "reversed", "K first", "no gradient"],
)
def test_folded_rejects(wrong, message):
    with pytest.raises(AssertionError, match=message):
        check.folded(wrong)
