"""The check of the exercise on TaLK's normalisation accepts the right, and says what is wrong."""

import pytest
import torch

from dynconv import ops
from dynconv.teach import check


def sums(x, left, right, max_left, max_right):
    y = ops.talk_conv(x, left, right, max_left=max_left, max_right=max_right)
    return y * (max_left + max_right + 1)


def by_ones(x, *window):
    return sums(x, *window) / sums(torch.ones_like(x), *window)


def distances(left, right, max_left, max_right, cut=True):
    t = torch.arange(left.shape[1])[:, None]
    room = (t, len(t) - 1 - t) if cut else (1000, 1000)
    to_right = torch.zeros_like(left) if right is None else right * max_right
    return (left * max_left).clamp(max=room[0]), to_right.clamp(max=room[1])


def by_edges(x, left, *rest, cut=True, itself=1, spread=torch.Tensor.repeat_interleave):
    width = sum(distances(left, *rest, cut=cut)) + itself
    R = x.shape[2] // left.shape[2]
    width = spread(width, R, 2) if spread is torch.Tensor.repeat_interleave else spread(width, R)
    return sums(x, left, *rest) / width


def by_shares(x, left, right, max_left, max_right):
    to_left, to_right = distances(left, right, max_left, max_right)
    t = torch.arange(x.shape[1])
    ahead = (t - t[:, None])[None, :, :, None]  # (1, T, T, 1)
    share = torch.minimum(1 + ahead + to_left[:, :, None], 1 - ahead + to_right[:, :, None])
    share = share.clamp(0, 1)
    share = (share / share.sum(dim=2, keepdim=True)).permute(0, 3, 1, 2)  # (B, H, T, T)
    heads = x.unflatten(2, (left.shape[2], -1)).transpose(1, 2)
    return (share @ heads).transpose(1, 2).flatten(2)


def no_gradient(x, *window):
    return sums(x, *window) / sums(torch.ones_like(x), *window).detach()


@pytest.mark.parametrize("right", [by_ones, by_edges, by_shares])
def test_accepts(right, capsys):
    check.true_width(right)
    assert capsys.readouterr().out.startswith("right: ")


def by_K_again(x, *window):
    return by_ones(x, *window) / (window[2] + window[3] + 1)


def in_place(x, left, *rest):
    y = by_ones(x, left, *rest)
    left *= 0.5
    return y


def rounded(x, left, *rest):
    width = (sum(distances(left, *rest)) + 1).round()
    return sums(x, left, *rest) / width.repeat_interleave(x.shape[2] // left.shape[2], 2)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda *a: None, "a NoneType, not a tensor"),
        (sums, "H = 1, .*: this is the sum, not divided"),
        (lambda *a: sums(*a) / (a[3] + a[4] + 1), "divides by max_left .* as the paper does"),
        (lambda *a: by_edges(*a, cut=False), "which no end of the sentence cuts"),
        (lambda *a: by_edges(*a, itself=0), "lacks the word itself"),
        (rounded, "rounded to whole words"),
        (by_K_again, "H = 1, .*: this divides by K as well as by the width"),
        (lambda *a: by_edges(*a, spread=lambda w, R: w.repeat(1, 1, R)), "H = 3, .*: each head"),
        (no_gradient, "gradients of left differ .* too: is it detached"),
        (lambda *a: by_ones(*a).float(), "it returns torch.float32 for an x of torch.float64"),
        (in_place, "it changes `left` in place"),
        (lambda *a: by_ones(*a)[:, -1:], r"values: mine has shape \(2, 1, 6\)"),
    ],
    ids=[
        "nothing",
        "sum",
        "K",
        "uncut",
        "itself",
        "rounded",
        "K again",
        "heads",
        "detached",
        "float32",
        "in place",
        "shape",
    ],
)
def test_rejects(wrong, message):
    with pytest.raises(AssertionError, match=message):
        check.true_width(wrong)
