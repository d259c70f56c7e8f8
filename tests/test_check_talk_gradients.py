"""The check of the exercise on TaLK's backward pass accepts the right, and names each fault."""

import pytest
import torch

from dynconv import ops
from dynconv.teach import check


def by_autograd(g, x, left, right, max_left, max_right):
    inputs = [z.requires_grad_() for z in (x, left, right)]
    out = ops.talk_conv(*inputs, max_left=max_left, max_right=max_right, impl="table")
    return torch.autograd.grad(out, inputs, g)


def by_hand(g, x, left, right, max_left, max_right, *, further=1, held=True, whole=True):
    """Matrices of shares; `further`, `held` and `whole` make the faults of an offset's gradient."""
    T, H, K = x.shape[1], left.shape[2], max_left + max_right + 1
    t = torch.arange(T)
    distances = [left * max_left, right * max_right]
    rooms = [t[:, None].expand_as(left), (T - 1 - t)[:, None].expand_as(left)]
    cut = [torch.minimum(d, room) for d, room in zip(distances, rooms, strict=True)]
    ahead = (t - t[:, None])[..., None]  # (T, T, 1)
    shares = (1 + ahead + cut[0][:, :, None]).clamp(0, 1)  # (B, T, T, H)
    shares = torch.minimum(shares, (1 - ahead + cut[1][:, :, None]).clamp(0, 1))
    heads = [z.unflatten(2, (H, -1)) for z in (g, x)]  # (B, T, H, R)
    dx = torch.einsum("btsh,bthr->bshr", shares, heads[0]).flatten(2) / K
    products = torch.einsum("bthr,bshr->btsh", *heads)
    grads = []
    sides = zip(distances, cut, rooms, (-1, 1), (max_left, max_right), strict=True)
    for distance, d, room, sign, reach in sides:
        place = d if held else distance
        token = t[:, None] + sign * (place.floor().long() + further)
        moves = (token >= 0) & (token < T) & (distance < room) if held else torch.tensor(True)
        if whole:
            moves = moves & (place != place.floor())
        picked = products.gather(2, token.clamp(0, T - 1)[:, :, None])[:, :, 0]  # (B, T, H)
        grads.append((picked * moves) * reach / K)
    return dx, *grads


def column_by_column(g, x, left, right, max_left, max_right):
    """Lists of numbers, one sentence and one head at a time."""
    (B, T, C), H = x.shape, left.shape[2]
    R, K = C // H, max_left + max_right + 1
    dx, dleft, dright = (torch.zeros_like(z) for z in (x, left, right))
    for b, t, h in torch.cartesian_prod(*map(torch.arange, (B, T, H))).tolist():
        c = slice(h * R, h * R + R)
        low = max(t - left[b, t, h].item() * max_left, 0)
        high = min(t + right[b, t, h].item() * max_right, T - 1)
        for s in range(T):
            share = min(1, max(0, 1 - low + s), max(0, 1 - s + high))
            dx[b, s, c] += share * g[b, t, c] / K
        if low % 1:
            dleft[b, t, h] = max_left / K * g[b, t, c] @ x[b, int(low), c]
        if high % 1:
            dright[b, t, h] = max_right / K * g[b, t, c] @ x[b, int(high) + 1, c]
    return [dx, dleft, dright]


@pytest.mark.parametrize("right", [by_autograd, by_hand, column_by_column])
def test_accepts_the_right(right, capsys):
    check.talk_gradient(right)
    assert capsys.readouterr().out == "right: dx, dleft and dright agree on 4 cases\n"


def changed(**change):
    """The right answer, with functions of it and of K in the place of some of its parts."""

    def mine(*inputs):
        K = inputs[4] + inputs[5] + 1
        parts = zip(("dx", "dleft", "dright"), by_autograd(*inputs), strict=True)
        return tuple(change.get(name, lambda z, K: z)(z, K) for name, z in parts)

    return mine


def untransposed(g, x, left, right, max_left, max_right):
    _, *others = by_autograd(g, x, left, right, max_left, max_right)
    return ops.talk_conv(g, left, right, max_left=max_left, max_right=max_right), *others


def first_head(g, x, left, right, max_left, max_right):
    _, *others = by_autograd(g, x, left, right, max_left, max_right)
    return by_autograd(g, x, left[..., :1], right[..., :1], max_left, max_right)[0], *others


def interleaved(g, x, left, right, max_left, max_right):
    _, *others = by_autograd(g, x, left, right, max_left, max_right)
    order = torch.arange(6).view(-1, left.shape[2]).T.flatten()
    dx, *_ = by_autograd(g[..., order], x[..., order], left, right, max_left, max_right)
    return dx[..., order.argsort()], *others


def mirrored(g, x, left, right, max_left, max_right):
    dx, dleft, dright = by_autograd(g, x, left, right, max_left, max_right)
    return dx, dright, dleft


def in_place(g, x, left, right, max_left, max_right):
    found = by_autograd(g, x, left, right, max_left, max_right)
    with torch.no_grad():
        left *= max_left
    return found


def without_reach(g, x, left, right, max_left, max_right):
    dx, dleft, dright = by_autograd(g, x, left, right, max_left, max_right)
    return dx, dleft / max_left, dright / max_right


WRONG = {
    "one tensor": (lambda *_: torch.zeros(1), "return three tensors"),
    "two tensors": (lambda *z: by_autograd(*z)[:2], "return three tensors"),
    "None": (changed(dright=lambda z, K: None), "dright is a NoneType"),
    "shape": (changed(dleft=lambda z, K: z[..., 0]), r"dleft has shape \(2, 7\), not"),
    "float32": (changed(dx=lambda z, K: z.float()), "dx is torch.float32, not torch.float64"),
    "in place": (in_place, "it changes `left` in place"),
    "dx not divided": (changed(dx=lambda z, K: z * K), "dx .*; divide by"),
    "dx turned": (changed(dx=lambda z, K: -z), "dx .*; the sign"),
    "untransposed": (untransposed, "T = 7.*dx .*; transpose the shares"),
    "first head": (first_head, "T = 9.*dx .*; each head has windows of its own"),
    "interleaved": (interleaved, "T = 9.*dx .*; channel c belongs to head c // R"),
    "left turned": (changed(dleft=lambda z, K: -z), "dleft .*; the sign is turned"),
    "right turned": (changed(dright=lambda z, K: -z), "dright .*; the sign is turned"),
    "left not divided": (changed(dleft=lambda z, K: z * K), "dleft .*; divide by"),
    "no reach": (without_reach, "dleft .*; the edge moves 3 tokens per unit"),
    "all channels": (
        changed(dright=lambda z, K: z.sum(2, keepdim=True).expand_as(z)),
        "T = 9.*dright .*; a head has its own channels alone",
    ),
    "mean": (changed(dleft=lambda z, K: z * z.shape[2] / 6), "; sum over the channels"),
    "inner token": (lambda *z: by_hand(*z, further=0), "dleft .*; that token is in the window"),
    "outer token": (lambda *z: by_hand(*z, further=2), "dleft .*; one token too far"),
    "not held": (lambda *z: by_hand(*z, held=False), "dleft .*; 0 where the sentence ends"),
    "at whole": (lambda *z: by_hand(*z, whole=False), "T = 9.*dleft .*; 0 where the distance is"),
    "sides exchanged": (mirrored, r"dleft differs first at \[0, 0, 0\]: mine .*, right 0$"),
}


@pytest.mark.parametrize("name", WRONG)
def test_names_the_fault(name):
    wrong, message = WRONG[name]
    with pytest.raises(AssertionError, match=message):
        check.talk_gradient(wrong)
