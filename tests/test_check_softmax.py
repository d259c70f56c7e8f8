"""The checks of the exercises on the softmax accept the right, and say what is wrong."""

import pytest
import torch
import torch.nn.functional as F

from dynconv import ops
from dynconv.teach import check


def weight_gradient(x, g, pad_left, H, K):
    padded = F.pad(x, (0, 0, pad_left, K - 1 - pad_left))
    by_channel = torch.einsum("btc,btck->ck", g, padded.unfold(1, K, 1))  # (C, K)
    return by_channel.unflatten(0, (H, -1)).sum(dim=1)


def test_gradient_exercise_accepts_the_right_and_rejects_what_is_half_done(capsys):
    def answer(backward, w_of=lambda logits: logits.softmax(dim=1)):
        def mine(x, logits, g, pad_left):
            return backward(w_of(logits), weight_gradient(x, g, pad_left, *logits.shape))

        return mine

    def right(w, G):
        return w * (G - (w * G).sum(dim=1, keepdim=True))

    check.softmax_gradient(answer(right))
    assert capsys.readouterr().out.startswith("right")
    wrong = {
        "the weights' own": lambda w, G: G,
        "diagonal alone": lambda w, G: w * (1 - w) * G,
        "plain mean": lambda w, G: w * (G - G.mean(dim=1, keepdim=True)),
        "summed over heads": lambda w, G: w * (G - (w * G).sum(dim=0)),
        "not times w": lambda w, G: G - (w * G).sum(dim=1, keepdim=True),
    }
    for backward in wrong.values():
        with pytest.raises(AssertionError, match="T = 1, pad_left = 2: values differ first at"):
            check.softmax_gradient(answer(backward))
    with pytest.raises(AssertionError, match="T = 1, pad_left = 2: values differ first at"):
        check.softmax_gradient(answer(right, w_of=lambda logits: logits.softmax(dim=0)))


def test_renormalised_exercise_accepts_the_right_and_rejects_what_is_left_at_an_end():
    def conv(x, weight, pad_left):
        return ops.light_conv(x, weight, pad_left=pad_left)

    def right(x, logits, pad_left):
        weight = logits.softmax(dim=1)
        return conv(x, weight, pad_left) / conv(torch.ones_like(x), weight, pad_left)

    def plain(x, logits, pad_left):
        return conv(x, logits.softmax(dim=1), pad_left)

    def of_logits(x, logits, pad_left):
        return conv(x, logits, pad_left) / conv(torch.ones_like(x), logits, pad_left)

    def plain_at_the_end(x, logits, pad_left):
        out, weight = right(x, logits, pad_left), logits.softmax(dim=1)
        whole = conv(torch.ones_like(x), weight, pad_left)
        return torch.where(torch.arange(x.shape[1])[:, None] < pad_left, out, out * whole)

    check.renormalised(right)
    for wrong, T in ((plain, 1), (of_logits, 5), (plain_at_the_end, 5)):
        with pytest.raises(AssertionError, match=f"T = {T}, pad_left = 2: values differ first at"):
            check.renormalised(wrong)
