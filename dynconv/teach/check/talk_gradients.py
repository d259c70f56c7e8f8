"""The check of the exercise on TaLK's backward pass."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from dynconv import ops
from dynconv.ops.talk import edges
from dynconv.teach.check.inputs import left_alone

CASES = [(7, 1, 3, 2), (9, 2, 4, 12), (5, 3, 15, 7), (1, 2, 3, 3)]
"""(T, H, max_left, max_right); in the second, windows have whole and half distances"""


def talk_gradient(mine: Callable[..., tuple[Tensor, Tensor, Tensor]]) -> None:
    """mine(g, x, left, right, max_left, max_right) is the gradients of x and of both offsets;
    g and x (B, T, C), offsets (B, T, H)."""
    for T, H, max_left, max_right in CASES:
        seed = torch.Generator().manual_seed(T)
        g, x = torch.randn(2, 2, T, 6, generator=seed, dtype=torch.float64)
        left, right = torch.rand(2, 2, T, H, generator=seed, dtype=torch.float64)
        if T == 9:
            left, right = ((8 * offset).round() / 8 for offset in (left, right))
        inputs = (g, x, left, right, max_left, max_right)
        given = [z.clone() for z in inputs[:4]]
        found = mine(*given, max_left, max_right)
        try:
            _compare(found, inputs)
            left_alone(("g", "x", "left", "right"), given, inputs[:4])
        except AssertionError as error:
            case = f"T = {T}, H = {H}, max_left = {max_left}, max_right = {max_right}"
            raise AssertionError(f"{case}: {error}") from None
    print(f"right: dx, dleft and dright agree on {len(CASES)} cases")


def _compare(found, inputs: tuple) -> None:
    if not isinstance(found, tuple | list) or len(found) != 3:
        raise AssertionError("return three tensors: dx, dleft, dright")
    for name, a, b in zip(("dx", "dleft", "dright"), found, _right(*inputs), strict=True):
        if not isinstance(a, Tensor):
            raise AssertionError(f"{name} is a {type(a).__name__}, not a tensor")
        if a.shape != b.shape:
            raise AssertionError(f"{name} has shape {tuple(a.shape)}, not {tuple(b.shape)}")
        if a.dtype != b.dtype:
            raise AssertionError(f"{name} is {a.dtype}, not {b.dtype}: x.new_zeros keeps the type")
        a = a.detach()
        wrong = ~_near(a, b)
        if wrong.any():
            at = tuple(wrong.nonzero()[0].tolist())
            reasons = _of_x(a, b, inputs) if name == "dx" else _of_offset(name, a, b, inputs)
            hint = next((f"; {why}" for applies, why in reasons if applies), "")
            numbers = f"mine {a[at]:.4g}, right {b[at]:.4g}"
            raise AssertionError(f"{name} differs first at {list(at)}: {numbers}{hint}")


def _near(a: Tensor, b: Tensor) -> Tensor:
    return torch.isclose(a, b, rtol=1e-9, atol=1e-11)


def _right(g, x, left, right, max_left, max_right) -> tuple[Tensor, ...]:
    inputs = [z.clone().requires_grad_() for z in (x, left, right)]
    out = ops.talk_conv(*inputs, max_left=max_left, max_right=max_right, impl="loop")
    return torch.autograd.grad(out, inputs, g)


def _of_x(mine: Tensor, right: Tensor, inputs: tuple) -> Iterator[tuple[bool, str]]:
    """Whether a wrong dx is wrong for this reason, for each reason."""
    g, x, *offsets, max_left, max_right = inputs
    H, reach = offsets[0].shape[2], (max_left, max_right)

    def is_near(guess: Tensor) -> bool:
        return bool(_near(mine, guess).all())

    yield is_near(right * (1 + sum(reach))), "divide by max_left + max_right + 1"
    yield is_near(-right), "the sign is turned"
    untransposed = ops.talk_conv(g, *offsets, max_left=max_left, max_right=max_right)
    yield is_near(untransposed), "transpose the shares: a token hears of the windows that hold it"
    first = [offset[..., :1] for offset in offsets]
    yield is_near(_right(g, x, *first, *reach)[0]), "each head has windows of its own"
    order = torch.arange(x.shape[2]).view(-1, H).T.flatten()  # channels with the same c % H
    moved = _right(g[..., order], x[..., order], *offsets, *reach)[0][..., order.argsort()]
    yield is_near(moved), "channel c belongs to head c // R, with R = C / H"


def _of_offset(name: str, mine: Tensor, right: Tensor, inputs: tuple) -> Iterator[tuple[bool, str]]:
    """Whether a wrong gradient of an offset is wrong for this reason, for each reason."""
    g, x, *offsets, max_left, max_right = inputs
    side, sign = (0, -1) if name == "dleft" else (1, 1)
    (T, C), H, K, reach = x.shape[1:], offsets[0].shape[2], 1 + sum(inputs[4:]), inputs[4 + side]
    distance = edges(*offsets, max_left, max_right)[side]  # (B, T, H)
    whole = distance == distance.floor()

    def is_near(guess: Tensor) -> bool:
        return bool(_near(mine, guess).all())

    yield is_near(-right), "the sign is turned: a larger offset takes in more of its token"
    yield is_near(right * K), "divide by max_left + max_right + 1"
    yield is_near(right / reach), f"the edge moves {reach} tokens per unit of the offset"
    yield is_near(right.sum(2, keepdim=True).expand_as(right)), "a head has its own channels alone"
    yield is_near(right * H / C), "sum over the channels of the head, instead of their mean"
    products = (g[:, :, None] * x[:, None]).unflatten(3, (H, -1)).sum(4)  # (B, T, T, H)
    for further, why in ((0, "that token is in the window whole"), (2, "one token too far")):
        token = torch.arange(T)[:, None] + sign * (distance.floor().long() + further)  # (B, T, H)
        inside = (token >= 0) & (token < T) & ~whole
        value = products.gather(2, token.clamp(0, T - 1)[:, :, None])[:, :, 0] * reach / K
        yield is_near(value.where(inside, 0)), why
    wrong = ~_near(mine, right)
    held = distance != (offsets[side] * reach).clamp(min=0)
    yield bool(held[wrong].all()), "0 where the sentence ends before the window does"
    yield bool(whole[wrong].all()), "0 where the distance is whole"
